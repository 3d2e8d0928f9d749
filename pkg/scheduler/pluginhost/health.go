// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"slices"
	"time"

	"github.com/kubedevice/kubedevice/pkg/plugincall"
)

// health is the state machine: what is known of how a plugin serves. It makes no call and has no
// lock and no clock; Plugin guards it, and reports what happens to it.
type health struct {
	backOffs   backOffs
	quarantine quarantine
	// blocked says that no call is made before an earlier one has returned.
	blocked bool
	// unverified is the last failed call of which it is not known what is to blame.
	unverified *Call
	// answered are probes of the last two nodes for which the plugin answered a request.
	answered [2]Probe
}

// quarantine is the time for which a plugin is not called that fails for plain requests.
type quarantine struct {
	text    string // says why; "" while there is none
	length  time.Duration
	until   time.Time
	probing bool
}

// state returns the state that follows from all this.
func (h *health) state() State {
	switch {
	case h.quarantine.probing:
		return Probing
	case h.quarantine.text != "":
		return Quarantined
	case h.blocked:
		return Blocked
	case h.unverified != nil:
		return Unverified
	case len(h.backOffs) > 0:
		return BackingOff
	default:
		return Serving
	}
}

// backOff returns what keeps the plugin from a call, or nil.
func (h *health) backOff(call *Call, now time.Time) *backOff {
	if len(h.backOffs) == 0 {
		return nil
	}
	for _, suspect := range call.suspects() {
		if found := h.backOffs.find(suspect, call.Subject.Node, now); found != nil {
			return found
		}
	}
	return nil
}

// isDue reports whether the back-off of the node that a request is for has passed: then the node is
// probed before it is tried with the request.
func (h *health) isDue(call *Call, now time.Time) bool {
	found := h.backOffs[culprit{BlamedNode, call.Subject.Node}]
	return call.Subject.Probe != nil && found != nil && !found.lasts(now)
}

// served notes that a call was answered. It reports whether a back-off has ended with that.
func (h *health) served(call *Call) (ended bool) {
	if probe := call.Subject.Probe; probe != nil {
		h.answeredFor(probe)
	}
	if len(h.backOffs) == 0 {
		return false
	}
	for _, suspect := range call.suspects() {
		if found := h.backOffs[suspect]; found != nil && slices.Contains(found.nodes, call.Subject.Node) {
			delete(h.backOffs, suspect)
			ended = true
		}
	}
	return ended
}

// failed notes what a failed call is blamed on, and why. It returns when the next call is made.
func (h *health) failed(call *Call, blamed culprit, text string, now time.Time) (until time.Time) {
	switch {
	case blamed.blamed == BlamedPlugin:
		h.extendQuarantine(text, now)
		return h.quarantine.until
	case blamed.blamed == BlamedNothing:
		return now.Add(firstBackOff)
	case call.Method == MethodAddNode && plugincall.OutcomeOf(call.failed) != plugincall.TimedOut:
		return now.Add(AddNodeInterval) // the caller waits by itself
	default:
		found := h.backOffs.add(blamed, call.Subject.Node, text, now)
		h.extendBackOff(call, found)
		return found.until
	}
}

// extendBackOff makes a back-off last until the call has returned, if it hangs.
func (h *health) extendBackOff(call *Call, found *backOff) {
	if plugincall.OutcomeOf(call.failed) == plugincall.TimedOut && !call.returned && call.hangs == nil {
		call.hangs = found
		found.overdue++
	}
}

// returned notes that a call has returned after its limit.
func (h *health) returned(call *Call, took time.Duration, now time.Time) {
	call.returned = true
	if found := call.hangs; found != nil {
		found.overdue--
		if until := now.Add(overdueFactor * took); until.After(found.until) {
			found.until = until
		}
	}
}

// extendQuarantine begins a quarantine, or makes it longer.
func (h *health) extendQuarantine(text string, now time.Time) {
	length := doubled(h.quarantine.length)
	h.quarantine = quarantine{text: text, length: length, until: now.Add(length)}
}

// endProbing ends a quarantine if a probe was answered, or makes it longer, and returns what is
// left of it.
func (h *health) endProbing(answered bool, now time.Time) quarantine {
	if answered {
		h.quarantine = quarantine{}
	} else {
		h.extendQuarantine(h.quarantine.text, now)
	}
	return h.quarantine
}

// answeredFor notes a node for which the plugin has answered a request.
func (h *health) answeredFor(probe Probe) {
	if last := h.answered[0]; last != nil && last.NodeName() != probe.NodeName() {
		h.answered[1] = last
	}
	h.answered[0] = probe
}

// forget drops a node whose inventory changes from those that a probe may be for. A plugin has to
// answer only for what was last reported to it.
func (h *health) forget(node string) {
	for i, probe := range h.answered {
		if probe != nil && probe.NodeName() == node {
			h.answered[i] = nil
		}
	}
}

// otherNodes returns the nodes but this one for which the plugin answered last.
func (h *health) otherNodes(node string) []Probe {
	return slices.DeleteFunc(slices.Clone(h.answered[:]), func(probe Probe) bool {
		return probe == nil || probe.NodeName() == node
	})
}

// blamesOnlyNode reports whether a failure on the only node that can be probed is the plugin's, and
// not the node's: the plugin answered for this node before, or fails for another too.
func (h *health) blamesOnlyNode(node string) bool {
	if h.answered != [2]Probe{} {
		return true
	}
	for blamed := range h.backOffs {
		if blamed.blamed == BlamedNode && blamed.id != node {
			return true
		}
	}
	return false
}
