// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package vendors

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/vendors"
)

// Each of two NUMA nodes has two of both, and four pods come.
func TestDevicesOfTwoVendorsAreOnOneNUMANodeIfAPodWantsThemSo(t *testing.T) {
	ctx := begin(t)
	n := nodes[0]
	namespace := clustertest.Namespace(t, shared.Client)
	places := map[corev1.ResourceName]func(id string) []int{}
	for _, plugin := range []string{nvidia, "qat_plugin"} {
		devices := n.Plugin(plugin).Devices
		places[corev1.ResourceName(devices[0].Resource)] = func(id string) []int {
			return devices[slices.IndexFunc(devices, func(d vendors.Device) bool { return d.ID == id })].NUMA
		}
	}
	for i := range 4 {
		pod := clustertest.On(n.Name, clustertest.IdlePod(namespace, fmt.Sprintf("pod-%d", i),
			limits{"nvidia.com/gpu": 1, "qat.intel.com/cy": 1}))
		kube.SetRequests(pod, `"numa/A/nvidia.com:gpu":1,"numa/A/qat.intel.com:cy":1`)
		var at [][]int
		for resource, ids := range expectDevices(ctx, t, clustertest.RunPod(ctx, t, shared.Client, pod)) {
			at = append(at, places[resource](ids[0]))
		}
		if len(at) != 2 || !slices.Equal(at[0], at[1]) {
			t.Errorf("pod %s was allocated devices of the NUMA nodes %v", pod.Name, at)
		}
	}
}
