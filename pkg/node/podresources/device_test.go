// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// extendedByLevel publishes devices of the levels gpu and nic.
type extendedByLevel struct{}

func (extendedByLevel) ExtendedOf(name types.ResourceName) (types.ResourceName, bool) {
	for _, level := range []string{"gpu", "nic"} {
		if strings.Contains(string(name), "/"+level+"/") {
			return types.ResourceName("example.com/" + level), true
		}
	}
	return "", false
}

func TestNamesOfDevices(t *testing.T) {
	for name, test := range map[string]struct {
		names []types.ResourceName
		want  []Device
	}{
		"one for the kubelet's API, by its own names": {
			[]types.ResourceName{nic}, []Device{{"vendor.example/nic", "eth0/1", []int{0, 1}}},
		},
		"one of a plugin file, by its lowest level": {
			[]types.ResourceName{"resource/group/gpugrp0/0/gpu/GPU-7/cards"},
			[]Device{{"example.com/gpu", "GPU-7", nil}},
		},
		"on a NUMA node": {
			[]types.ResourceName{"resource/group/numa/1/nic/n0/ports"}, []Device{{"example.com/nic", "n0", []int{1}}},
		},
		"on two NUMA nodes": {
			[]types.ResourceName{"resource/group/numa/0-1/nic/n0/ports"},
			[]Device{{"example.com/nic", "n0", []int{0, 1}}},
		},
		"on another level called numa": {
			[]types.ResourceName{"resource/group/numa/left/nic/n0/ports"}, []Device{{"example.com/nic", "n0", nil}},
		},
		"once, with any number of resources": {
			[]types.ResourceName{
				"resource/group/gpu/GPU-7/memory", "resource/group/gpu/GPU-7/cards",
				"resource/group/gpu/GPU-7/enumType",
			},
			[]Device{{"example.com/gpu", "GPU-7", nil}},
		},
		"twice, if two groups have one of that ID": {
			[]types.ResourceName{"resource/group/board/0/gpu/0/cards", "resource/group/board/1/gpu/0/cards"},
			[]Device{{"example.com/gpu", "0", nil}, {"example.com/gpu", "0", nil}},
		},
		"nothing, if its plugin publishes no extended resource": {
			[]types.ResourceName{"resource/group/secret/0/use"}, nil,
		},
		"nothing, if it is a count or a name of no device": {
			[]types.ResourceName{"example.com/gpu", "resource/group/gpu/cards", "resource/group/a/gpu/0/cards"}, nil,
		},
		"in the order of their names": {
			[]types.ResourceName{gpu1, qat, gpu0}, []Device{{"intel.com/qat", "0000:3d:01.0", nil},
				{"nvidia.com/gpu", "GPU-0", []int{0}}, {"nvidia.com/gpu", "GPU-1", []int{1}}},
		},
	} {
		got := Devices{Names: extendedByLevel{}}.ForResources(slices.Values(test.names))
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func FuzzEveryNameCanBeSentOrIsLeftOut(f *testing.F) {
	for _, name := range []string{nic, "resource/group/numa/0-1/gpu/GPU-7/cards",
		"resource/group/numa/none/a.b:c/%FF/device", "resource/group/gpu/\xff/cards", ""} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		names := slices.Values([]types.ResourceName{types.ResourceName(name)})
		devices := Devices{Names: extendedByLevel{}}.ForResources(names)
		if len(devices) > 1 {
			t.Errorf("%q is %d devices", name, len(devices))
		}
		for _, entry := range entries(devices) {
			if entry.GetResourceName() == "" || entry.GetDeviceIds()[0] == "" {
				t.Errorf("%q is called %v", name, entry)
			}
			if _, err := proto.Marshal(
				&podresourcesapi.ContainerResources{Devices: []*podresourcesapi.ContainerDevices{entry}}); err != nil {
				t.Errorf("%q cannot be sent: %v", name, err)
			}
		}
	})
}
