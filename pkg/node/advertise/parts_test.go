// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// sharing returns the inventory with n devices of an extended resource and a level added, each with
// 1,000 MiB, a little more, and 100 cores. The first unhealthy of them are.
func sharing(info *types.NodeInfo, extended types.ResourceName, level string, n, unhealthy int) *types.NodeInfo {
	for i := range n {
		device := fmt.Sprintf("resource/group/%s/%s-%d/", level, level, i)
		for kind, quantity := range map[string]int64{"cards": 1, "memory": 1000<<20 + 1, "cores": 100} {
			name := types.ResourceName(device + kind)
			info.Capacity[name] = quantity
			if i >= unhealthy {
				info.Allocatable[name] = quantity
			}
		}
	}
	info.Capacity[extended], info.KubeCap[extended] = int64(n), int64(n)
	info.Allocatable[extended], info.KubeAlloc[extended] = int64(n-unhealthy), int64(n-unhealthy)
	return info
}

func TestTheMemoryAndCoresOfDevicesCountTogether(t *testing.T) {
	const nvidia, other types.ResourceName = "nvidia.com/gpu", "example.com/gpu"
	empty := func() *types.NodeInfo { return types.NewNodeInfoWithName("node-1") }
	for name, test := range map[string]struct {
		info      *types.NodeInfo
		now       map[string]string
		requested map[string]int64
		want      map[corev1.ResourceName]int64
	}{
		"GPUs of NVIDIA": {
			info: sharing(empty(), nvidia, "gpu", 4, 0),
			want: map[corev1.ResourceName]int64{"nvidia.com/gpumem": 4000, "nvidia.com/gpucores": 400},
		},
		"devices of another name": {
			info: sharing(empty(), other, "gpu", 2, 0),
			want: map[corev1.ResourceName]int64{"example.com/gpu.memory": 2000, "example.com/gpu.cores": 200},
		},
		"the only devices there are": {
			info: sharing(empty(), "example.com/board", "widget", 1, 0),
			want: map[corev1.ResourceName]int64{"example.com/board.memory": 1000, "example.com/board.cores": 100},
		},
		"devices of one level by two names": {
			info: sharing(sharing(empty(), nvidia, "gpu", 2, 0), other, "gpu", 2, 0),
			want: map[corev1.ResourceName]int64{},
		},
		"devices without memory": {info: gpus(2), want: map[corev1.ResourceName]int64{}},
		"an unhealthy GPU": {
			info: sharing(empty(), nvidia, "gpu", 4, 1),
			want: map[corev1.ResourceName]int64{"nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 300},
		},
		"pods request more than healthy GPUs have": {
			info: sharing(empty(), nvidia, "gpu", 4, 2), requested: map[string]int64{"nvidia.com/gpumem": 2500},
			want: map[corev1.ResourceName]int64{"nvidia.com/gpumem": 2500, "nvidia.com/gpucores": 200},
		},
		"pods request more than all GPUs have": {
			info: sharing(empty(), nvidia, "gpu", 4, 0), requested: map[string]int64{"nvidia.com/gpumem": 9000},
			want: map[corev1.ResourceName]int64{"nvidia.com/gpumem": 4000, "nvidia.com/gpucores": 400},
		},
	} {
		w := newWanted(nodeWith("", test.now), test.info, VirtualDevices{nvidia: 10}, test.requested, true)
		if diff := cmp.Diff(test.want, w.parts); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The status has the counts with the first devices and loses them with the last ones. The
// annotation never has them: they are no devices.
func TestCountsOfPartsComeAndGoWithTheDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		some := sharing(types.NewNodeInfoWithName("node-1"), "nvidia.com/gpu", "gpu", 2, 0)
		client := fake.NewClientset(nodeWith("", nil))
		s := newSource(some)
		followed(t, client, s, Options{}, func(_ *Advertiser, nodes chan<- *corev1.Node) {
			check := func(when string, memory int64, there bool) {
				t.Helper()
				pass(2 * Gap)
				node := get(t, client)
				for _, list := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
					if got, ok := list["nvidia.com/gpumem"]; got.Value() != memory || ok != there {
						t.Errorf("%s: the status has %v of the memory", when, &got)
					}
				}
				info, err := deviceinfo.DecodeNode(node.Annotations[deviceinfo.Annotation])
				if node.Annotations[deviceinfo.Annotation] != "" && err != nil {
					t.Fatal(err)
				}
				if info != nil {
					if _, listed := info.Capacity["nvidia.com/gpumem"]; listed {
						t.Errorf("%s: the annotation lists it", when)
					}
				}
			}
			nodes <- get(t, client)
			check("two GPUs", 2000, true)
			s.set(sharing(types.NewNodeInfoWithName("node-1"), "nvidia.com/gpu", "gpu", 1, 0))
			check("one GPU", 1000, true)
			s.set(types.NewNodeInfoWithName("node-1"))
			check("no GPU", 0, false)
		})
	})
}

func TestWithdrawRemovesTheCountsOfPartsToo(t *testing.T) {
	info := sharing(types.NewNodeInfoWithName("node-1"), "nvidia.com/gpu", "gpu", 2, 0)
	client := fake.NewClientset(nodeWith(annotationOf(t, info), map[string]string{
		"nvidia.com/gpu": "2", "nvidia.com/gpumem": "2000", "nvidia.com/gpucores": "200", "example.com/gpumem": "1",
	}))
	if _, found, err := Withdraw(t.Context(), client, "node-1"); err != nil || !found {
		t.Fatalf("found=%v, %v", found, err)
	}
	want := nodeWith("", map[string]string{"example.com/gpumem": "1"})
	if diff := cmp.Diff(want.Status, get(t, client).Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}
