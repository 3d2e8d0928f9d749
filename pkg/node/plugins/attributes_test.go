// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// describer is a plugin that describes its devices.
type describer struct {
	*fake
	mu     sync.Mutex
	answer func() (map[string]device.Attributes, error)
}

func (d *describer) DeviceAttributes() (map[string]device.Attributes, error) {
	d.mu.Lock()
	answer := d.answer
	d.mu.Unlock()
	return answer()
}

func (d *describer) say(answer func() (map[string]device.Attributes, error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer = answer
}

const gpu0, gpu1 = "resource/group/gpu/0", "resource/group/gpu/1"

func TestAPluginDescribesItsDevices(t *testing.T) {
	answers := func(attributes map[string]device.Attributes, err error) func() (map[string]device.Attributes, error) {
		return func() (map[string]device.Attributes, error) { return attributes, err }
	}
	both := map[string]device.Attributes{
		gpu0: {"productName": device.String("Model A"), "cudaComputeCapability": device.Version("9.0.0")},
		gpu1: {"productName": device.String("Model B"), "numaNode": device.Int(0)},
	}
	d := &describer{fake: &fake{name: "a", update: offers(count, card0, card1)}, answer: answers(nil, nil)}
	m := run(t, quick, nil, d)
	for _, step := range []struct {
		what   string
		answer func() (map[string]device.Attributes, error)
		want   map[string]device.Attributes
		remark string
	}{
		{what: "nothing", answer: answers(nil, nil)},
		{what: "both", answer: answers(both, nil), want: both},
		{what: "an error", answer: answers(nil, errors.New("no driver")), want: both, remark: "no driver"},
		{what: "a panic", answer: func() (map[string]device.Attributes, error) { panic("oops") }, want: both,
			remark: "oops"},
		{
			what: "bad ones, and a device that is not there",
			answer: answers(map[string]device.Attributes{
				gpu0:                   {"good": device.Bool(true), "0bad": device.Int(1), "empty": {}},
				gpu1:                   {"long": device.String(strings.Repeat("x", 65)), "v": device.Version("1.2.04")},
				"resource/group/gpu/9": {"good": device.Bool(true)},
			}, nil),
			want:   map[string]device.Attributes{gpu0: {"good": device.Bool(true)}},
			remark: `gpu/0: attribute "0bad"`,
		},
		{what: "none any more", answer: answers(nil, nil)},
	} {
		d.say(step.answer)
		inventory := until(t, m, step.what, func(i *Inventory) bool {
			return i.Complete && maps.EqualFunc(i.Attributes, step.want, maps.Equal) &&
				strings.Contains(m.Remarks(), step.remark) && (m.Remarks() == "") == (step.remark == "")
		})
		if err := m.Check(); err != nil || inventory.Node.KubeAlloc[count] != 2 {
			t.Errorf("%s: the devices are not all offered: %v", step.what, err)
		}
	}
}

func TestAttributesThatDoNotChangeChangeNoInventory(t *testing.T) {
	calls := make(chan struct{})
	d := &describer{fake: &fake{name: "a", update: offers(count, card0, card1)}}
	d.say(func() (map[string]device.Attributes, error) {
		calls <- struct{}{}
		return map[string]device.Attributes{gpu0: {"a": device.Int(1), "0bad": device.Int(1)}}, nil
	})
	m := run(t, quick, nil, d)
	<-calls
	until(t, m, "the attributes", func(i *Inventory) bool { return len(i.Attributes) == 1 })
	_, changed := m.Inventory()
	<-calls
	<-calls
	select {
	case <-changed:
		t.Error("the same attributes changed the inventory")
	default:
	}
	d.say(func() (map[string]device.Attributes, error) { return nil, nil })
	for drained := false; !drained; {
		select {
		case <-calls:
		case <-changed:
			drained = true
		}
	}
}

func TestADeviceHasAtMost32AttributesAndResources(t *testing.T) {
	info := types.NewNodeInfo()
	info.Capacity[gpu0+"/cards"], info.Capacity[gpu0+"/memory"] = 1, 1
	many := device.Attributes{}
	for i := range 40 {
		many[fmt.Sprintf("a%02d", i)] = device.Int(int64(i))
	}
	kept, err := CheckAttributes(info, map[string]device.Attributes{gpu0: many})
	if len(kept[gpu0]) != 30 || kept[gpu0]["a29"] != device.Int(29) {
		t.Errorf("%d are kept: %v", len(kept[gpu0]), kept)
	}
	if err == nil || !strings.Contains(err.Error(), "a30: the device has more than 32") ||
		!strings.Contains(err.Error(), "and 6 more") {
		t.Errorf("the error is %v", err)
	}
}

func TestOneOfTwoClaimedDevicesIsDescribedByItsOwner(t *testing.T) {
	describes := func(name, model string) *describer {
		d := &describer{fake: &fake{name: name, update: offers("", card0)}}
		d.say(func() (map[string]device.Attributes, error) {
			return map[string]device.Attributes{gpu0: {"productName": device.String(model)}}, nil
		})
		return d
	}
	m := run(t, quick, nil, describes("a", "first"), describes("b", "second"))
	inventory := until(t, m, "both plugins", func(i *Inventory) bool { return i.Complete })
	if got := inventory.Attributes[gpu0]["productName"]; got != device.String("first") {
		t.Errorf("it is described as %v", got)
	}
}
