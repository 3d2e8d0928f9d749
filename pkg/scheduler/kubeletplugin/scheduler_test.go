// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/scheduler/kubeletplugin"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestNodePublishesResourcesOfItsDevices(t *testing.T) {
	for name, test := range map[string]struct {
		devices []string
		want    map[types.ResourceName]bool
	}{
		"a node without devices": {nil, map[types.ResourceName]bool{}},
		"two resources": {
			[]string{"gpu 0 a", "qat 0 b"}, map[types.ResourceName]bool{gpu: true, qat: true},
		},
		"two devices of one resource": {[]string{"gpu 0 a", "gpu 1 b"}, map[types.ResourceName]bool{gpu: true}},
	} {
		t.Run(name, func(t *testing.T) {
			node := types.NewNodeInfo()
			for _, text := range test.devices {
				node.Allocatable[deviceName(t, text)] = 0 // an unhealthy one is published, too
			}
			if diff := cmp.Diff(test.want, kubeletplugin.New().Read(node).Resources()); diff != "" {
				t.Errorf("published (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMethodsAllocateWithoutContainerList(t *testing.T) {
	s := kubeletplugin.New()
	node := types.NewNodeInfo()
	node.Allocatable[deviceName(t, "qat 0 a")] = 1
	for quantity, want := range map[int64]string{1: "", 2: "have fewer than 2 free intel.com/qat"} {
		pod := requestOf("p", spec{limits: list{qat: quantity}}).Pod
		fits, reasons, score := s.PodFitsDevice(node, pod.Clone(), false)
		if fits != (want == "") || fits != (score == 1) || !fits && reasons[0].GetReason() != want {
			t.Errorf("%d devices: %v, %v, %v; want the reason %q", quantity, fits, reasons, score, want)
		}
		err := s.PodAllocate(node, pod)
		if allocated := allocatedDevices(pod); (err == nil) != fits || (len(allocated) == 1) != fits {
			t.Errorf("%d devices: allocated %v, %v", quantity, allocated, err)
		}
	}
}
