// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// namedCards are cards of which NVIDIA's container runtime gets the names.
type namedCards struct {
	cards
	nodes []string
}

func (c *namedCards) Allocate(
	*types.PodInfo, *types.ContainerInfo,
) ([]device.Mount, []string, map[string]string, error) {
	return nil, c.nodes, map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-1"}, nil
}

// additions are what was expected, as pod/container vendor.
type additions []string

func (a *additions) Expect(pod *corev1.ObjectReference, container string, expected []firewall.Expected) {
	for _, e := range expected {
		*a = append(*a, pod.Name+"/"+container+" "+e.Vendor)
	}
}

func TestCreatedContainersAreCheckedForDevicesOfTheirVendorsRuntime(t *testing.T) {
	for name, test := range map[string]struct {
		plugin  device.Device
		refused bool
		want    []string
	}{
		"devices that are named":             {plugin: &namedCards{}, want: []string{"pod-u/main nvidia.com"}},
		"devices that are named, and passed": {plugin: &namedCards{nodes: []string{"/dev/nvidia0"}}},
		"devices that are passed":            {plugin: &cards{}},
		"a container that is refused":        {plugin: &namedCards{}, refused: true},
	} {
		f := fixtureWith(t, test.plugin)
		f.pods["u"] = requesting
		f.Runtimes = firewall.NewRuntimes(nil)
		var got additions
		f.DeviceChecker = &got
		device := types.ResourceName(card0)
		if test.refused {
			device = "resource/group/gpu/9/cards"
		}
		_, err := f.create(t, "u", "main", "api",
			allocation(t, "pod-u", "node-1", map[string][]types.ResourceName{"main": {device}}))
		if (err != nil) != test.refused || !slices.Equal(got, test.want) {
			t.Errorf("%s: %v is expected, want %v (%v)", name, got, test.want, err)
		}
	}
}
