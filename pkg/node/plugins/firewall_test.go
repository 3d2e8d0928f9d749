// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// denyingFake is a fake that implements device.Isolator.
type denyingFake struct {
	*fake
	deny func() map[string]string
}

var _ device.Isolator = denyingFake{}

func (f denyingFake) DenyEnvs() map[string]string { return f.deny() }

func denies(name, value string) func() map[string]string {
	return func() map[string]string { return map[string]string{name: value} }
}

func TestAContainerIsDeniedWhatItHoldsNothingOf(t *testing.T) {
	m := run(t, quick, nil,
		denyingFake{&fake{name: "a", update: offers("", card0)}, denies("VISIBLE", "void")},
		denyingFake{&fake{name: "b", update: offers("", card1)}, denies("VISIBLE", "none")},
		denyingFake{&fake{name: "ill", start: func() error { return errors.New("no driver") }}, denies("OTHER", "")},
		&fake{name: "indifferent", update: offers("", card2)},
	)
	until(t, m, "all devices are there", func(i *Inventory) bool { return len(i.Node.Capacity) == 3 })
	for name, test := range map[string]struct {
		holds types.ResourceLocation
		want  map[string]string
	}{
		"nothing": {nil, map[string]string{"VISIBLE": "void", "OTHER": ""}},
		"of the first, so the second's say": {
			container(card0).AllocateFrom, map[string]string{"VISIBLE": "none", "OTHER": ""},
		},
		"of the second": {
			container(card1).AllocateFrom, map[string]string{"VISIBLE": "void", "OTHER": ""},
		},
		"of both": {types.ResourceLocation{"x": card0, "y": card1}, map[string]string{"OTHER": ""}},
		"of one that denies nothing": {
			container(card2).AllocateFrom, map[string]string{"VISIBLE": "void", "OTHER": ""},
		},
	} {
		said, complete := m.Firewalls(test.holds)
		got := map[string]string{}
		for _, label := range []string{"b", "a", "ill"} { // the first plugin's value counts
			maps.Copy(got, said[label].Envs)
		}
		if diff := cmp.Diff(test.want, got); diff != "" || !complete {
			t.Errorf("%s: complete: %t (-want +got):\n%s", name, complete, diff)
		}
	}
}

// walledFake is a fake that implements device.Firewalled.
type walledFake struct {
	*fake
	said device.Firewall
}

var _ device.Firewalled = walledFake{}

func (f walledFake) Firewall() device.Firewall { return f.said }

func TestFirewallRulesOfAPluginHoldForItsHolders(t *testing.T) {
	said := device.Firewall{
		Envs: map[string]string{"VISIBLE": "void"}, CDIKinds: []string{"a.example/*"}, MountPaths: []string{"/run/a"},
		OtherDrivers: []string{"tools.a.example"},
	}
	m := run(t, quick, nil, walledFake{&fake{name: "a", update: offers("", card0)}, said})
	until(t, m, "its device", func(i *Inventory) bool { return len(i.Node.Capacity) == 1 })
	for _, holds := range []types.ResourceLocation{nil, container(card0).AllocateFrom} {
		got, _ := m.Firewalls(holds)
		if diff := cmp.Diff(map[string]device.Firewall{"a": said}, got); diff != "" {
			t.Errorf("a container that holds %v (-want +got):\n%s", holds, diff)
		}
	}
}

func TestTheFirewallKnowsWhetherAPluginIsMissing(t *testing.T) {
	m := run(t, quick, nil,
		denyingFake{&fake{name: "a"}, denies("A", "\x00")}, &fake{name: "b", update: offers("", card0)})
	until(t, m, "the other's device", func(i *Inventory) bool { return i.Node.Capacity[card0] == 1 })
	if _, complete := m.Firewalls(nil); complete {
		t.Error("a plugin was left out, and what plugins say counts as complete")
	}
}

// boastful is a fake that panics when the host calls whether it is safe for concurrent use.
type boastful struct{ *fake }

func (boastful) ConcurrentSafe() bool { panic("who knows") }

func TestAPluginThatCannotSayWhatItIsAbleToIsLeftOutAndHarmsNoOther(t *testing.T) {
	for name, test := range map[string]struct {
		broken device.Device
		says   string
	}{
		"a panic in DenyEnvs": {
			denyingFake{&fake{name: "broken"}, func() map[string]string { panic("boom") }},
			`device plugin "broken": DenyEnvs: panic: boom`,
		},
		"no name for a variable": {
			denyingFake{&fake{name: "broken"}, denies("", "x")},
			`device plugin "broken": DenyEnvs: environment variable ""`,
		},
		"a value that no pod could set": {
			denyingFake{&fake{name: "broken"}, denies("A", "\x00")},
			`device plugin "broken": DenyEnvs: environment variable A`,
		},
		"no CDI kind": {
			walledFake{&fake{name: "broken"}, device.Firewall{CDIKinds: []string{"vendor.com"}}},
			`device plugin "broken": Firewall: CDI kind "vendor.com"`,
		},
		"a mount path that is no absolute one": {
			walledFake{&fake{name: "broken"}, device.Firewall{MountPaths: []string{"run/x"}}},
			`device plugin "broken": Firewall: mount path "run/x"`,
		},
		"a driver without a name": {
			walledFake{&fake{name: "broken"}, device.Firewall{OtherDrivers: []string{""}}},
			`device plugin "broken": Firewall: driver ""`,
		},
		"a panic in ConcurrentSafe": {
			boastful{&fake{name: "broken"}}, `device plugin "broken": ConcurrentSafe: panic: who knows`,
		},
	} {
		m := run(t, quick, nil, test.broken, &fake{name: "well", update: offers("", card0)})
		got := until(t, m, "the other's device", func(i *Inventory) bool { return i.Node.Capacity[card0] == 1 })
		if got.Complete {
			t.Errorf("%s: the inventory says that it is complete", name)
		}
		if err := m.Check(); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: health: %v, want %q", name, err, test.says)
		}
	}
}
