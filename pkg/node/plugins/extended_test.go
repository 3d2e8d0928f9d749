// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestADeviceIsPublishedUnderTheExtendedResourceOfItsPlugin(t *testing.T) {
	const (
		gpu    types.ResourceName = "resource/group/gpugrp0/0/gpu/GPU-0/cards"
		port   types.ResourceName = "resource/group/card/0/port/p0/use"
		vf     types.ResourceName = "resource/group/card/0/vf/v0/use"
		secret types.ResourceName = "resource/group/secret/0/use"
	)
	one := &fake{name: "one", update: offers("example.com/accelerator", gpu)}
	two := &fake{name: "two", update: func(info *types.NodeInfo) error {
		for _, name := range []types.ResourceName{port, vf} {
			info.Capacity[name] = 1
		}
		for _, name := range []types.ResourceName{"example.com/port", "example.com/wire"} {
			info.KubeCap[name] = 1
		}
		return nil
	}}
	none := &fake{name: "none", update: offers("", secret)}
	also := &fake{name: "also", update: offers("example.org/socket", "resource/group/socket/0/port/x/use")}
	for name, test := range map[string]struct {
		plugins []device.Device
		device  types.ResourceName
		want    types.ResourceName
	}{
		"the only one of its plugin": {
			[]device.Device{one, two}, gpu, "example.com/accelerator",
		},
		"the one of several that is called like it": {[]device.Device{one, two}, port, "example.com/port"},
		"none of several is called like it":         {[]device.Device{one, two}, vf, ""},
		"its plugin publishes none":                 {[]device.Device{one, none}, secret, ""},
		"a device that is gone, of a level that is there": {
			[]device.Device{one, two}, "resource/group/gpugrp0/1/gpu/GPU-9/cards", "example.com/accelerator",
		},
		"a device that is gone, of a level that two have": {
			[]device.Device{two, also}, "resource/group/card/0/port/p9/use", "",
		},
		"a device that is gone, of an unknown level": {
			[]device.Device{one, two}, "resource/group/tpu/0/cores", "",
		},
		"a name that is no device's": {[]device.Device{one}, "example.com/accelerator/x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := run(t, quick, nil, test.plugins...)
			<-m.Synced()
			inventory, _ := m.Inventory()
			if got, known := inventory.ExtendedOf(test.device); got != test.want || known != (test.want != "") {
				t.Errorf("got %q, %v; want %q", got, known, test.want)
			}
		})
	}
}
