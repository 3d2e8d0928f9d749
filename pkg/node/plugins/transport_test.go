// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// transport is one whose sources a test replaces, and may come late. Devices are
// resource/group/late/LABEL/nic/ID/device.
type transport struct {
	mu      sync.Mutex
	sources []Source
	changed chan struct{}
}

var _ Transport = (*transport)(nil)

func newTransport(sources ...Source) *transport {
	return &transport{sources: sources, changed: make(chan struct{})}
}

func (t *transport) set(sources ...Source) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sources = sources
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *transport) Sources() ([]Source, bool, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sources, true, t.changed
}

func (t *transport) Late(device types.ResourceName) (string, bool) {
	rest, late := strings.CutPrefix(string(device), "resource/group/late/")
	label, _, _ := strings.Cut(rest, "/")
	return label, late
}

// late is a source of such a transport at one time.
type late struct {
	label string
	state State
}

func (l late) Label() string               { return l.label }
func (l late) State() State                { return l.state }
func (late) Firewall(bool) device.Firewall { return device.Firewall{} }
func (l late) Allocate(context.Context, Claim) (inject.Addition, error) {
	return inject.Addition{Plugin: l.label}, nil
}

// lateName is the device of a source and an ID.
func lateName(label, id string) types.ResourceName {
	return types.ResourceName("resource/group/late/" + label + "/nic/" + id + "/device")
}

// serving is a source with healthy devices of those IDs and unhealthy ones, whose IDs begin with a
// minus sign.
func serving(label string, ids ...string) late {
	extended := types.ResourceName("example.com/" + label)
	info := types.NewNodeInfo()
	info.KubeCap[extended] = int64(len(ids))
	for _, id := range ids {
		name := lateName(label, strings.TrimPrefix(id, "-"))
		info.Capacity[name], info.Allocatable[name] = 1, 1
		if id[0] == '-' {
			info.Allocatable[name] = 0
		} else {
			info.KubeAlloc[extended]++
		}
	}
	return late{label, State{Info: info, Reported: true, Serving: true}}
}

// gone is a source that has left.
func gone(label string, ids ...string) late {
	s := serving(label, ids...)
	s.state.Serving, s.state.Err = false, errors.New(label+" has left")
	for name := range s.state.Info.Allocatable {
		s.state.Info.Allocatable[name] = 0
	}
	clear(s.state.Info.KubeAlloc)
	return s
}

// runLate runs a manager of a plugin file with card0 and of the transport until the test ends.
func runLate(t *testing.T, others *transport) *Manager {
	t.Helper()
	m := start(t, newFiles(quick, nil, &fake{name: "a", update: offers("", card0)}), others)
	<-m.Synced()
	return m
}

func TestLateDevicesAreAddedToThoseOfPluginFiles(t *testing.T) {
	others := newTransport(serving("nic", "x", "-y"))
	m := runLate(t, others)
	inventory := until(t, m, "both", func(i *Inventory) bool { return i.Complete && len(i.owners) > 3 })
	for name, want := range map[types.ResourceName]int64{card0: 1, "example.com/nic": 2, lateName("nic", "x"): 1,
		lateName("nic", "y"): 0} {
		if name == "example.com/nic" {
			want = 1 // of two, one is healthy
		}
		if got, known := inventory.Allocatable(name); !known || got != want {
			t.Errorf("%s: %d allocatable, known %v; want %d", name, got, known, want)
		}
	}
	if from := (types.ResourceLocation{"r": lateName("nic", "x")}); !inventory.Serves("example.com/nic", from) {
		t.Error("a device of the resource does not serve a request for it")
	}

	others.set(gone("nic", "x", "y"))
	until(t, m, "the plugin's absence", func(i *Inventory) bool { return !i.Complete })
	if err := m.Check(); err == nil || !strings.Contains(err.Error(), "nic has left") {
		t.Errorf("health says %v", err)
	}
	others.set()
	until(t, m, "nothing of it",
		func(i *Inventory) bool { _, known := i.Allocatable("example.com/nic"); return i.Complete && !known })
}

func TestAContainerAwaitsTheLateSourcesOfItsDevices(t *testing.T) {
	others := newTransport(gone("nic", "x"))
	m := runLate(t, others)
	m.Await(t.Context(), types.ResourceLocation{"r": card0}) // of a plugin file: it is not awaited

	came := make(chan struct{})
	go func() {
		defer close(came)
		m.Await(t.Context(), types.ResourceLocation{"r": lateName("nic", "x")})
	}()
	others.set(gone("nic", "x"), serving("fpga", "x"))
	until(t, m, "another source",
		func(i *Inventory) bool { _, known := i.Allocatable("example.com/fpga"); return known })
	select {
	case <-came:
		t.Fatal("another source was taken for the one that is awaited")
	case <-time.After(100 * time.Millisecond):
	}
	others.set(serving("nic", "-x"))
	<-came
	inventory, _ := m.Inventory()
	if err := inventory.Missing(lateName("nic", "x")); err != nil {
		t.Errorf("with the source there, something is missing: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m.Await(ctx, types.ResourceLocation{"r": lateName("no-such", "x")})
	if err := inventory.Missing(lateName("no-such", "x")); err == nil ||
		!strings.Contains(err.Error(), "no device plugin of no-such has registered") {
		t.Errorf("without a source: %v", err)
	}
}

func TestALateDeviceThatAPluginFileHasIsNotAwaited(t *testing.T) {
	m := start(t, newFiles(quick, nil, &fake{name: "a", update: offers("", lateName("nic", "x"))}),
		newTransport(gone("nic", "x")))
	inventory := until(t, m, "the file's device",
		func(i *Inventory) bool { return i.Node.Allocatable[lateName("nic", "x")] == 1 })
	if err := inventory.Missing(lateName("nic", "x")); err != nil {
		t.Errorf("a device of a plugin file is missing: %v", err)
	}
}

func TestADeviceIsUnhealthyOnlyIfItsSourceSaysSo(t *testing.T) {
	others := newTransport(serving("nic", "good", "-bad"))
	m := runLate(t, others)
	inventory := until(t, m, "all", func(i *Inventory) bool { return i.Complete && len(i.owners) > 3 })
	for name, want := range map[types.ResourceName]string{
		lateName("nic", "good"):                 "healthy",
		lateName("nic", "bad"):                  ReasonUnhealthy,
		lateName("nic", "not listed"):           ReasonGone,
		lateName("no-such", "x"):                "not known",
		card0:                                   "healthy",
		"resource/group/gpu/no-such-card/cards": ReasonGone,
	} {
		if got := healthText(inventory.HealthOf(name)); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	others.set(gone("nic", "good"))
	inventory = until(t, m, "the plugin's absence", func(i *Inventory) bool { return !i.Complete })
	for _, name := range []types.ResourceName{lateName("nic", "good"), lateName("nic", "bad"),
		"resource/group/gpu/no-such-card/cards"} {
		if got := healthText(inventory.HealthOf(name)); got != "not known" {
			t.Errorf("with the plugin away, %s is %s", name, got)
		}
	}
	if list := inventory.Unhealthy(); len(list) != 1 || list[0].Reason != ReasonPluginGone ||
		list[0].Device != "resource/group/late/nic/nic/good" || list[0].Message == "" {
		t.Errorf("with the plugin away, unhealthy are %+v", list)
	}
}

func healthText(h Health, known bool) string {
	switch {
	case !known:
		return "not known"
	case h.Healthy:
		return "healthy"
	}
	return h.Reason
}

// While two plugins claim a resource, both are there. Nothing is known of the devices of the one
// that does not serve.
func TestADeviceIsWithheldWhileAnotherPluginClaimsIt(t *testing.T) {
	claimed := errors.New("the kubelet has it, too")
	withheld := late{"nic", State{Reported: true, Withheld: map[types.ResourceName]error{"example.com/nic": claimed}}}
	held := serving("nic", "-x")
	held.state.Health = map[string]device.Health{
		path.Dir(string(lateName("nic", "x"))): {Reason: ReasonWithheld, Message: "pod p has it"},
	}
	for name, c := range map[string]struct {
		source   late
		counts   types.ResourceName // of the plugin file
		withheld string             // empty if it is not
		health   string
		ofTwo    bool // the resource
	}{
		"its plugin serves":       {serving("nic", "x"), "", "", "healthy", false},
		"its plugin is gone":      {gone("nic", "x"), "", "", "not known", false},
		"it is unhealthy":         {serving("nic", "-x"), "", "", ReasonUnhealthy, false},
		"the kubelet has it":      {withheld, "", "the kubelet has it, too", "not known", true},
		"a plugin file has it":    {serving("nic", "x"), "example.com/nic", "is claimed by", "not known", true},
		"another pod may hold it": {held, "", "pod p has it", "not known", false},
	} {
		t.Run(name, func(t *testing.T) {
			file := newFiles(quick, nil, &fake{name: "a", update: offers(c.counts, card0)})
			m := start(t, file, newTransport(c.source))
			<-m.Synced()
			inventory, _ := m.Inventory()
			if err := inventory.Contested["example.com/nic"]; (err != nil) != c.ofTwo {
				t.Errorf("the resource is contested with %v", err)
			}
			// Otherwise what the kubelet serves would be taken for this program's still.
			if c.ofTwo && !inventory.Complete {
				t.Error("it is not known which resources the node has")
			}
			err := inventory.Withheld(lateName("nic", "x"))
			if (err != nil) != (c.withheld != "") || err != nil && !strings.Contains(err.Error(), c.withheld) {
				t.Errorf("it is withheld with %v", err)
			}
			if got := healthText(inventory.HealthOf(lateName("nic", "x"))); got != c.health {
				t.Errorf("it is %s", got)
			}
			if err := inventory.Withheld(card0); err != nil {
				t.Errorf("the file's is withheld with %v", err)
			}
			if len(c.source.state.Withheld) > 0 && !errors.Is(inventory.Missing(lateName("nic", "x")), claimed) {
				t.Error("it can be used")
			}
		})
	}
}
