// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletdevice_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestADeviceHasOneNameAndTheNameOneDevice(t *testing.T) {
	for want, device := range map[types.ResourceName]kubeletdevice.Device{
		"resource/group/numa/0/intel.com:qat/0000:3d:01.0/device": {Resource: "intel.com/qat", ID: "0000:3d:01.0",
			NUMA: []int{0}},
		"resource/group/numa/0-1/nvidia.com:gpu/GPU-7f3a::3/device": {Resource: "nvidia.com/gpu", ID: "GPU-7f3a::3",
			NUMA: []int{0, 1}},
		"resource/group/numa/2-10/a.b:c/x/device":                     {Resource: "a.b/c", ID: "x", NUMA: []int{2, 10}},
		"resource/group/numa/none/nvidia.com:gpu/MIG-1%2F0/device":    {Resource: "nvidia.com/gpu", ID: "MIG-1/0"},
		"resource/group/numa/none/a.b:c/%20%22%5C%25%0A%FF/device":    {Resource: "a.b/c", ID: " \"\\%\n\xff"},
		"resource/group/numa/none/a.b:c/.%2E.%2E%2F.%2Ex/device":      {Resource: "a.b/c", ID: "..../..x"},
		"resource/group/numa/none/a.b:c.%2Ed_e-f/device/device":       {Resource: "a.b/c..d_e-f", ID: "device"},
		"resource/group/numa/none/a.b:c/enum/device":                  {Resource: "a.b/c", ID: "enum"},
		"resource/group/numa/none/a.b:c/<'&>,;=*@!$()[]{}|^`~/device": {Resource: "a.b/c", ID: "<'&>,;=*@!$()[]{}|^`~"},
	} {
		name, err := kubeletdevice.Name(device)
		if err != nil || name != want {
			t.Errorf("name of %+v = %q, %v; want %q", device, name, err, want)
		}
		back, ok := kubeletdevice.Parse(want)
		if diff := cmp.Diff(device, back); !ok || diff != "" {
			t.Errorf("%q was read as (-want +got), %v:\n%s", want, ok, diff)
		}
		if resource.IsEnumResource(want) || !resource.IsGroupResourceName(want) {
			t.Errorf("%q is not a quantity of the group scheduler", want)
		}
	}
}

func TestMessagesNameTheDevice(t *testing.T) {
	for name, want := range map[types.ResourceName]string{
		"resource/group/numa/0-1/nvidia.com:gpu/MIG-1%2F0/device": "device MIG-1/0 of nvidia.com/gpu",
		"resource/group/gpugrp0/1/gpu/GPU-7f3a/cards":             "device resource/group/gpugrp0/1/gpu/GPU-7f3a",
	} {
		if got := kubeletdevice.Text(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestNUMANodesAreNamedInOneWay(t *testing.T) {
	for want, numa := range map[string][]int{"none": {-1}, "0-1": {1, 0, 1}, "3": {-1, 3}} {
		name, err := kubeletdevice.Name(kubeletdevice.Device{Resource: "a.b/c", ID: "x", NUMA: numa})
		if expected := types.ResourceName("resource/group/numa/" + want + "/a.b:c/x/device"); err != nil ||
			name != expected {
			t.Errorf("nodes %v: %q, %v; want %q", numa, name, err, expected)
		}
	}
}

func TestADeviceThatCannotBeNamedIsRefusedWithAReason(t *testing.T) {
	for reason, device := range map[string]kubeletdevice.Device{
		"empty ID":                 {Resource: "a.b/c"},
		`"qat" is no name`:         {Resource: "qat", ID: "x"},
		`"a.b/c/d" is no name`:     {Resource: "a.b/c/d", ID: "x"},
		`"a.b/c:d" is no name`:     {Resource: "a.b/c:d", ID: "x"},
		`"/c" is no name`:          {Resource: "/c", ID: "x"},
		"1034 bytes long, more th": {Resource: "a.b/c", ID: strings.Repeat("x", 1000-4)},
	} {
		if name, err := kubeletdevice.Name(device); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("name of %.60v = %q, %v; want an error with %q", device, name, err, reason)
		}
	}
}

func TestOtherResourcesAreNoKubeletDevices(t *testing.T) {
	for _, name := range []types.ResourceName{
		"", "intel.com/qat", "resource/group/gpu/GPU-1/cards", "resource/group/numa/0/gpu/GPU-1/cards",
		"resource/group/numa/0/gpu/GPU-1/device",
		"resource/group/numa/00/a.b:c/x/device", "resource/group/numa/1-0/a.b:c/x/device",
		"resource/group/numa/0-0/a.b:c/x/device",
		"resource/group/numa/-1/a.b:c/x/device", "resource/group/numa/+1/a.b:c/x/device",
		"resource/group/numa//a.b:c/x/device",
		"resource/group/numa/A/a.b:c/x/device",
		"resource/group/numa/0/a.b:c//device", "resource/group/numa/0/a.b:c/x/devices",
		"resource/group/numa/0/a.b:c/x/device/device",
		"resource/group/numa/0/a.b:c/%/device", "resource/group/numa/0/a.b:c/%4/device",
		"resource/group/numa/0/a.b:c/%41/device",
		"resource/group/numa/0/a.b:c/%2f/device", "resource/group/numa/0/a.b:c/%2E/device",
		"resource/group/numa/0/a.b:c/a b/device",
		"resource/group/numa/0/a.b:c:d/x/device", "resource/group/numa/0/a.b%2Fc/x/device",
		"resource/group/numa/0/a%2Eb:c/x/device",
	} {
		if device, ok := kubeletdevice.Parse(name); ok {
			t.Errorf("%q was read as %+v", name, device)
		}
	}
}

func TestARequestIsADevicesNameWithPlaceholders(t *testing.T) {
	name, err := kubeletdevice.Request("intel.com/qat", "A", "0")
	if want := types.ResourceName("resource/group/numa/A/intel.com:qat/0/device"); err != nil || name != want {
		t.Fatalf("request %q, %v; want %q", name, err, want)
	}
	extended, numa, device, ok := kubeletdevice.ParseRequest(name)
	if !ok || extended != "intel.com/qat" || numa != "A" || device != "0" {
		t.Errorf("%q was read as %q, %q, %q, %v", name, extended, numa, device, ok)
	}
	if name, err := kubeletdevice.Request("qat", "A", "0"); err == nil {
		t.Errorf("a resource without a domain gave the request %q", name)
	}
}

func FuzzEveryIDComesBackFromItsName(f *testing.F) {
	f.Add("intel.com/qat", "0000:3d:01.0", 0)
	f.Add("a.b/c..d", "../../..%2F\x00\xff", -1)
	f.Fuzz(func(t *testing.T, extended, id string, node int) {
		device := kubeletdevice.Device{Resource: types.ResourceName(extended), ID: id}
		if node >= 0 {
			device.NUMA = []int{node}
		}
		name, err := kubeletdevice.Name(device)
		if err != nil {
			return
		}
		back, ok := kubeletdevice.Parse(name)
		if diff := cmp.Diff(device, back); !ok || diff != "" {
			t.Errorf("%q was read as (-want +got), %v:\n%s", name, ok, diff)
		}
		published := &types.NodeInfo{Allocatable: types.ResourceList{name: 1}}
		if _, err := deviceinfo.EncodeNode(published); err != nil {
			t.Errorf("%q does not go into an annotation: %v", name, err)
		}
	})
}

func FuzzOneNameOneDevice(f *testing.F) {
	f.Add("resource/group/numa/0-1/intel.com:qat/0000%2F3d/device")
	f.Add("resource/group/numa/none/a.b:c/.%2E/device")
	f.Fuzz(func(t *testing.T, text string) {
		device, ok := kubeletdevice.Parse(types.ResourceName(text))
		if !ok {
			return
		}
		if name, err := kubeletdevice.Name(device); err != nil || string(name) != text {
			t.Errorf("%q was read as %+v, whose name is %q, %v", text, device, name, err)
		}
	})
}
