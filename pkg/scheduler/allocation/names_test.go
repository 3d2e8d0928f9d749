// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// claimer is a plugin that serves a plain resource which no node needs to list.
type claimer struct{ *fake }

func (claimer) ClaimedResources() []types.ResourceName {
	return []types.ResourceName{"example.com/fpga"}
}

func TestNamesOfDevicesOnANode(t *testing.T) {
	const gpu, fpga, hca = "nvidia.com/gpu", "example.com/fpga", "rdma/hca"
	type list = types.ResourceList
	for name, test := range map[string]struct {
		node types.NodeInfo
		want []types.ResourceName
	}{
		"a node that says nothing has what a plugin claims": {types.NodeInfo{}, []types.ResourceName{fpga}},
		"what the kubelet counts is its own, also if a plugin claims it": {
			types.NodeInfo{KubeCap: list{fpga: 2, hca: 1}, KubeAlloc: list{fpga: 2, hca: 1}}, nil,
		},
		"what the kubelet counts while its plugin is ill is its own": {
			types.NodeInfo{KubeCap: list{fpga: 2}, KubeAlloc: list{fpga: 0}}, nil,
		},
		"what a kubelet counts none of any more is the plugin's again": {
			types.NodeInfo{KubeCap: list{fpga: 0}, KubeAlloc: list{fpga: 0}}, []types.ResourceName{fpga},
		},
		"what the inventory lists is a device, even with none of it": {
			types.NodeInfo{Capacity: list{gpu: 0, fpga: 1}, KubeCap: list{gpu: 8, fpga: 1}},
			[]types.ResourceName{fpga, gpu},
		},
		"a name that is no extended resource's is ignored": {
			types.NodeInfo{
				Capacity: list{"cpu": 1, "kubernetes.io/x": 1, "requests.x.com/y": 1, "a b/c": 1, "": 1},
				KubeCap:  list{fpga: 1},
			}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var kubelets types.ResourceList
			s := set(t, clock.RealClock{}, claimer{&fake{add: func(node *types.NodeInfo) { kubelets = node.KubeCap }}})
			inventory, err := s.AddNode(t.Context(), test.node.Clone())
			if err != nil {
				t.Fatal(err)
			}
			var got []types.ResourceName
			for _, name := range []types.ResourceName{
				fpga, gpu, hca, "cpu", "kubernetes.io/x", "requests.x.com/y", "a b/c", "",
			} {
				if inventory.Counts(name) {
					got = append(got, name)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
			for name := range kubelets {
				if !slices.Contains(test.want, name) {
					t.Errorf("plugins see that the kubelet counts %s", name)
				}
			}
		})
	}
}

func TestNodesWithTheSameResourcesShareAPartOfARequest(t *testing.T) {
	s := set(t, clock.RealClock{}, gpus())
	node := func(names ...types.ResourceName) *Inventory {
		inventory, err := s.AddNode(t.Context(), listing("n", names...))
		if err != nil {
			t.Fatal(err)
		}
		return inventory
	}
	request := requestFor(1)
	first := s.partOf(request, node("nvidia.com/gpu", "x/a"))
	second := s.partOf(request, node("x/a", "nvidia.com/gpu"))
	if first != second {
		t.Error("two nodes with the same resources have parts of their own")
	}
	if first.Key() != request.Key() {
		t.Error("a node that has all resources has not the whole request")
	}
	if other := s.partOf(request, node()); other.Key() == request.Key() || !other.Empty() {
		t.Error("a node without the resource has a request for it")
	}
	if s.partOf(request, node("nvidia.com/gpu", "x/b")) != first {
		t.Error("a node that has a further resource, which the request does not count, has a part of its own")
	}
}

func TestFewPartsOfARequestAreKept(t *testing.T) {
	s := set(t, clock.RealClock{}, gpus())
	const resources = 8
	request := requestFor(0)
	requests := request.Pod.RunningContainers["main"].KubeRequests
	var counts []types.ResourceName
	for i := range resources {
		counts = append(counts, types.ResourceName(fmt.Sprintf("x/a%d", i)))
		requests[counts[i]] = 1
	}
	delete(requests, "nvidia.com/gpu")
	for some := range 1 << resources {
		var names []types.ResourceName
		for i, name := range counts {
			if some>>i&1 == 1 {
				names = append(names, name)
			}
		}
		inventory, err := s.AddNode(t.Context(), listing("n", names...))
		if err != nil {
			t.Fatal(err)
		}
		part := s.partOf(request, inventory).Pod.RunningContainers["main"].KubeRequests
		if got := slices.Sorted(maps.Keys(part)); !slices.Equal(got, names) {
			t.Fatalf("a node with %v has the part %v", names, got)
		}
	}
	if kept := len(*request.Memo(s.newParts).(*parts).bySet.Load()); kept > maxParts {
		t.Errorf("%d parts are kept, more than %d", kept, maxParts)
	}
}
