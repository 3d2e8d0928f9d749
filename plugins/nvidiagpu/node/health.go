// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"time"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/utils"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvml"
)

// DefaultFaultsFile keeps the faults of GPUs that the driver reports once, so that they outlive a
// restart of kubecri. It is in a directory that ends with the boot, as the faults do.
const DefaultFaultsFile = "/run/kubedevice/nvidiagpu-faults.json"

// checkInterval is how often GPUs are queried for what they say of themselves. XIDs are read with
// each inventory.
const checkInterval = 10 * time.Second

// maxEvents is how many XIDs are read at most with one inventory, so that a storm of them does not
// hold it up.
const maxEvents = 1000

// The reasons why a GPU is unhealthy. An XID has its number behind it. The last group is what the
// driver requests.
const (
	reasonLost          = "Lost"
	reasonXID           = "Xid"
	reasonRowRemap      = "RowRemapFailed"
	reasonPages         = "PageRetirementPending"
	reasonReset         = "ResetRequired"
	reasonReboot        = "RebootRequired"
	reasonDrainP2P      = "DrainP2PRequired"
	reasonDrainAndReset = "DrainAndResetRequired"
	reasonOtherAction   = "RecoveryRequired"
)

// reasonRecovered is the reason why a GPU is healthy that was not.
const reasonRecovered = "Recovered"

// fault is the last XID of a GPU or an instance that is a fault of it.
type fault struct {
	XID   uint64    `json:"xid"`
	Since time.Time `json:"since"`
	// GPU is the UUID of the GPU that an instance is on. A fault of an instance ends with it, too.
	GPU string `json:"gpu,omitempty"`
	// Acted says that the driver has requested an action since. The fault ends when it requests
	// none any more.
	Acted bool `json:"acted,omitempty"`
	// Lost says that the GPU has not answered since. The fault ends when it answers: what has left
	// the bus comes back by a reset.
	Lost bool `json:"lost,omitempty"`
}

// state is what is known of the health of one GPU or instance. Of an instance it is only the
// health.
type state struct {
	health  device.Health // but for the device's name
	gpu     string        // the UUID of an instance's GPU
	lost    bool          // it does not answer
	watched bool          // its XIDs are
	checked time.Time     // when it last reported what follows

	rowRemap, pages bool
	action          nvml.RecoveryAction
	actionKnown     bool
}

// health is the health of all GPUs. Its owner guards it.
type health struct {
	file   string // of the faults; empty for none
	counts faults
	every  time.Duration // between two checks of one GPU
	now    func() time.Time

	library *nvml.Library // nil before start, and where no XID counts
	events  *nvml.Events  // nil where the driver has none
	uuids   map[nvml.Device]string
	faults  map[string]*fault // by UUID
	gpus    map[string]*state // by UUID, of GPUs and of instances
	logged  string            // what was last said about events that cannot be read
	xids    map[gpuXID]bool   // that are logged

	instances map[string][]nvml.Instance // by the UUID of their GPU
}

func newHealth(file string) *health {
	return &health{
		file: file, every: checkInterval, now: time.Now,
		counts: faults{
			disabled: parseXIDs(DisableHealthChecks, os.Getenv(DisableHealthChecks)),
			enabled:  parseXIDs(EnableHealthChecks, os.Getenv(EnableHealthChecks)),
		},
		uuids: map[nvml.Device]string{}, faults: map[string]*fault{}, gpus: map[string]*state{},
		xids:      map[gpuXID]bool{},
		instances: map[string][]nvml.Instance{},
	}
}

// start reads the earlier faults and begins to listen. A driver without events is no error: what
// GPUs say of themselves is known still.
func (h *health) start(library *nvml.Library) {
	if err := h.load(); err != nil {
		utils.Errorf("The faults of NVIDIA GPUs before this start are not known: %v", err)
	}
	if h.counts.disabled.all && !h.counts.enabled.all && len(h.counts.enabled.numbers) == 0 {
		return
	}
	h.library = library
	h.listen()
}

// listen begins to listen again, to no GPU yet.
func (h *health) listen() {
	if h.events != nil {
		_ = h.events.Close() // it is of no use any more
	}
	clear(h.uuids)
	for _, s := range h.gpus {
		s.watched = false
	}
	var err error
	if h.events, err = h.library.NewEvents(); err != nil {
		utils.Errorf("XIDs of NVIDIA GPUs are not noticed: %v", err)
	}
}

// update finds out how the GPUs are: those that answer, and those that do not, by UUID.
func (h *health) update(present []found, missing []string) {
	before := len(h.faults)
	for _, g := range present {
		h.setInstances(g)
	}
	changed := h.readEvents()
	for _, g := range present {
		s := h.gpus[g.uuid]
		for _, uuid := range h.family(g.uuid) {
			if f := h.faults[uuid]; f != nil && f.Lost {
				delete(h.faults, uuid)
			}
		}
		if s.lost {
			*s = state{health: s.health} // all of it is read and watched again
		}
		h.watch(g, s)
		changed = h.check(g, s) || changed
	}
	for _, uuid := range missing {
		if h.gpus[uuid] == nil {
			h.gpus[uuid] = &state{}
		}
		h.gpus[uuid].lost = true
		for _, uuid := range h.family(uuid) {
			if f := h.faults[uuid]; f != nil && !f.Lost {
				f.Lost, changed = true, true
			}
		}
	}
	for uuid, s := range h.gpus {
		if s.gpu == "" {
			was := s.health
			s.judge(h.faults[uuid], h.now())
			logHealth("GPU", uuid, was, s.health)
		}
	}
	for uuid, s := range h.gpus {
		if s.gpu != "" {
			was := s.health
			s.judgeInstance(h.gpus[s.gpu].health, h.faults[uuid], h.now())
			logHealth("MIG instance", uuid, was, s.health)
		}
	}
	if changed || len(h.faults) != before {
		if err := h.save(); err != nil {
			utils.Errorf("The faults of NVIDIA GPUs are forgotten when kubecri restarts: %v", err)
		}
	}
}

// readEvents notes the XIDs that have come, and reports whether there were any that count.
func (h *health) readEvents() (changed bool) {
	if h.events == nil {
		return false
	}
	for range maxEvents {
		xid, ok, err := h.events.Next()
		if err != nil {
			// One GPU that is lost is an error for all that are in the set with it.
			if err.Error() != h.logged {
				utils.Errorf("XIDs of NVIDIA GPUs may be missed: %v", err)
			}
			h.logged = err.Error()
			h.listen()
			return changed
		}
		if h.logged = ""; !ok {
			return changed
		}
		uuid, known := h.uuids[xid.Device]
		if !known {
			continue
		}
		h.gpus[uuid].checked = time.Time{} // the driver may request an action now
		counts := h.counts.includes(xid.Number)
		h.logXID(uuid, xid.Number, counts)
		if !counts {
			continue
		}
		for _, concerned := range h.affectedUUIDs(uuid, xid) {
			changed = true
			if f := h.faults[concerned]; f != nil {
				f.XID, f.Acted = xid.Number, false
			} else {
				h.faults[concerned] = &fault{XID: xid.Number, Since: h.now(), GPU: h.gpus[concerned].gpu}
			}
		}
	}
	return changed
}

// watch listens for the XIDs of a GPU.
func (h *health) watch(g found, s *state) {
	if s.watched || h.events == nil {
		return
	}
	s.watched = true
	h.uuids[g.device] = g.uuid
	if err := h.events.Watch(g.device); err != nil {
		utils.Errorf("XIDs of NVIDIA GPU %s are not noticed: %v", g.uuid, err)
	}
}

// check asks a GPU for what it says of itself, if it is time, and reports whether that has changed
// its fault. What it does not say stays as it was.
func (h *health) check(g found, s *state) (changed bool) {
	now := h.now()
	if !s.checked.IsZero() && now.Sub(s.checked) < h.every {
		return false
	}
	s.checked = now
	if failed, err := g.device.RowRemapFailed(); err == nil {
		s.rowRemap = failed
	}
	if pending, err := g.device.PagesPending(); err == nil {
		s.pages = pending
	}
	action, err := g.device.RecoveryAction()
	if s.actionKnown = err == nil; s.actionKnown {
		s.action = action
	}
	for _, uuid := range h.family(g.uuid) {
		f := h.faults[uuid]
		switch {
		case f == nil || !s.actionKnown:
		case s.action != nvml.NoAction:
			changed = changed || !f.Acted
			f.Acted = true
		case f.Acted:
			delete(h.faults, uuid)
			changed = true
		}
	}
	return changed
}

// judge sets the health by all that is known.
func (s *state) judge(f *fault, now time.Time) {
	next := device.Health{Healthy: true}
	switch {
	case s.lost:
		next = device.Health{Reason: reasonLost,
			Message: "the GPU does not answer the driver: reset it or reboot the machine"}
	case f != nil:
		next = device.Health{
			Reason: xidReason(f.XID), Since: f.Since,
			Message: xidMessage(f.XID, s.advice()),
		}
	case s.rowRemap:
		next = device.Health{Reason: reasonRowRemap,
			Message: "a row of its memory has errors and could not be replaced: replace the GPU"}
	case s.action != nvml.NoAction:
		next = device.Health{Reason: reasonOf(s.action), Message: "the driver requests: " + s.action.String()}
	case s.pages:
		next = device.Health{Reason: reasonPages,
			Message: "pages of its memory with errors are in use until the machine is rebooted"}
	}
	s.become(next, now)
}

// become replaces the health, such that what lasts keeps the time since when it does.
func (s *state) become(next device.Health, now time.Time) {
	was := s.health
	switch {
	case next.Healthy && (was.Healthy || was.Reason == ""):
		// As it was, also how it became so.
		next.Reason, next.Message, next.Since = was.Reason, was.Message, was.Since
	case next.Healthy:
		next.Reason, next.Message, next.Since = reasonRecovered, "no longer "+was.Reason, now
	case was.Reason != "" && !was.Healthy:
		next.Since = was.Since
	case next.Since.IsZero():
		next.Since = now
	}
	s.health = next
}

func xidReason(xid uint64) string { return fmt.Sprint(reasonXID, xid) }

func xidMessage(xid uint64, advice string) string {
	return fmt.Sprintf("critical error (XID) %d; %s", xid, advice)
}

// advice says what ends an XID.
func (s *state) advice() string {
	if s.actionKnown && s.action != nvml.NoAction {
		return "the driver requests: " + s.action.String()
	}
	return "reset the GPU or reboot the machine"
}

func reasonOf(action nvml.RecoveryAction) string {
	switch action {
	case nvml.Reset:
		return reasonReset
	case nvml.Reboot:
		return reasonReboot
	case nvml.DrainP2P:
		return reasonDrainP2P
	case nvml.DrainAndReset:
		return reasonDrainAndReset
	}
	return reasonOtherAction
}
