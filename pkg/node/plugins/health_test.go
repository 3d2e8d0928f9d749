// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// reporter is a plugin that says why devices are unhealthy.
type reporter struct {
	*fake
	mu   sync.Mutex
	list []device.Health
	err  error
}

func (r *reporter) DeviceHealth() ([]device.Health, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list, r.err
}

func (r *reporter) say(err error, list ...device.Health) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list, r.err = list, err
}

func TestAPluginSaysWhyItsDevicesAreUnhealthy(t *testing.T) {
	const gpu0, gpu1 = "resource/group/gpu/0", "resource/group/gpu/1"
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := &reporter{fake: &fake{name: "a", update: offers(count, card0, card1)}}
	m := run(t, quick, nil, r)
	for _, step := range []struct {
		what string
		err  error
		list []device.Health
		want []Health // the unhealthy ones
	}{
		{what: "all are healthy"},
		{
			"one that is offered is not", nil,
			[]device.Health{{Device: gpu0, Reason: "TooHot", Message: "96 °C", Since: since}},
			[]Health{{
				Health: device.Health{Device: gpu0, Reason: "TooHot", Message: "96 °C", Since: since},
				Name:   card0,
			}},
		},
		{
			"another, for a reason that is no word, and a device that is not there", nil,
			[]device.Health{
				{Device: gpu1, Reason: "too hot", Message: strings.Repeat("x", 300)},
				{Device: "resource/group/gpu/9", Reason: "TooHot"},
			},
			[]Health{{
				Health: device.Health{Device: gpu1, Reason: "Unhealthy", Message: strings.Repeat("x", 256)},
				Name:   card1,
			}},
		},
		{what: "it fails to say", err: errors.New("no")},
		{
			what: "it says that one is healthy",
			list: []device.Health{{Device: gpu0, Healthy: true, Reason: "Recovered", Since: since}},
		},
	} {
		r.say(step.err, step.list...)
		inventory := until(t, m, step.what, func(i *Inventory) bool {
			return i.Complete && cmp.Equal(step.want, i.Unhealthy())
		})
		for _, name := range []string{gpu0, gpu1} {
			card := card0
			if name == gpu1 {
				card = card1
			}
			h, known := inventory.HealthOf(card)
			if quantity, _ := inventory.Allocatable(card); !known || h.Healthy != (quantity == 1) {
				t.Errorf("%s: %s is %+v, and %d of it are allocatable", step.what, name, h, quantity)
			}
		}
	}
	until(t, m, "what the plugin says of a healthy device", func(i *Inventory) bool {
		h, _ := i.HealthOf(card0)
		return h.Reason == "Recovered"
	})
}

func TestAPluginCannotGiveReasonsOfThisProgram(t *testing.T) {
	for _, reason := range []string{"", "not one word", ReasonPluginGone, ReasonGone, ReasonWithheld} {
		got := sanitize([]device.Health{{Device: "d", Reason: reason, Message: "m"}})["d"]
		if want := (device.Health{Device: "d", Reason: ReasonUnhealthy, Message: "m"}); got != want {
			t.Errorf("%q: %+v, want %+v", reason, got, want)
		}
	}
	if got := sanitize([]device.Health{{Device: "d", Reason: "Overheated"}})["d"].Reason; got != "Overheated" {
		t.Errorf("a reason of the plugin's is %q", got)
	}
}
