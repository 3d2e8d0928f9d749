// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
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
		got, err := m.DenyEnvs(context.Background(), test.holds)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// boastful is a fake that panics when it is asked whether it is safe for concurrent use.
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
		"a value that nobody could set": {
			denyingFake{&fake{name: "broken"}, denies("A", "\x00")},
			`device plugin "broken": DenyEnvs: environment variable A`,
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
