// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	names "github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/scheduler/kubeletplugin"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// A pod with any request gets free devices, none of them twice, which the group scheduler accepts;
// or it is refused.
func FuzzAnyRequestIsMetOrRefused(f *testing.F) {
	f.Add("numa/A/nvidia.com:gpu", int64(2), "numa/A/vendor.example:nic/=n0/device", int64(1), int64(3))
	f.Add("numa/=1/nvidia.com:gpu/=g3/device", int64(1), "resource/group/numa/=1/nvidia.com:gpu", int64(1), int64(0))
	f.Add("numa/A/nvidia.com:gpu/=g0/device", int64(0), "numa/0/nvidia.com:gpu/0/device", int64(1), int64(2))
	f.Add("numa/=/nvidia.com:gpu/=/device", int64(1), "numa//nvidia.com:gpu", int64(-1), int64(-1))
	f.Fuzz(func(t *testing.T, first string, firstQuantity int64, second string, secondQuantity, count int64) {
		node := types.NewNodeInfo()
		for _, device := range two {
			node.Allocatable[deviceName(t, device)] = 1
		}
		used := deviceName(t, two[0])
		node.Used[used] = 1
		inventory, err := grouptree.CompileDeviceTree(node.Allocatable, nil)
		if err != nil {
			t.Fatal(err)
		}
		pod := requestOf("p", spec{
			limits:   list{gpu: count},
			requests: list{types.ResourceName(first): firstQuantity, types.ResourceName(second): secondQuantity},
		}).Pod

		fits, reasons, score := kubeletplugin.New().PodFitsDevice(node, pod, true)
		if !fits {
			text := reasons[0].GetReason()
			follows := func(begin string) bool { return strings.HasPrefix(text, begin) }
			if !slices.ContainsFunc([]string{"have ", "do not have ", "cannot serve "}, follows) {
				t.Errorf("the reason is no predicate of a number of nodes: %s", text)
			}
			return
		}
		info := pod.RunningContainers["main"]
		if score < 0 || score > 1 || (score > 0) != (len(info.DevRequests) > 0) {
			t.Errorf("score %v for %v", score, info.AllocateFrom)
		}
		counted := int64(0)
		allocated := map[types.ResourceName]bool{used: true}
		for wanted, from := range info.AllocateFrom {
			if allocated[from] || node.Allocatable[from] == 0 || info.DevRequests[wanted] != 1 {
				t.Errorf("%s is met by %s, which is not free or met twice", wanted, from)
			}
			allocated[from] = true
			if resource, _, _, _ := names.ParseRequest(from); resource == gpu {
				counted++
			}
		}
		if counted < count {
			t.Errorf("%d GPUs for a count of %d", counted, count)
		}
		compiled, err := grouptree.CompileRequest(pod, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !grouptree.NewPlacer(0).Place(inventory, inventory.Dense(node.Used), compiled).Fits {
			t.Errorf("the group scheduler does not accept %v", info.AllocateFrom)
		}
	})
}
