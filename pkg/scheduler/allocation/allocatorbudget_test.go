// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/kubeletplugin"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// podOf returns the request of a pod whose containers count NICs.
func podOf(containers int) *request.Request {
	request := &request.Request{Pod: types.NewPodInfo()}
	for i := range containers {
		name := fmt.Sprintf("c%03d", i)
		request.Containers = append(request.Containers, grouptree.Container{Name: name, Kind: grouptree.Regular})
		request.Pod.RunningContainers[name] = types.ContainerInfo{KubeRequests: types.ResourceList{"a.b/nic": 1}}
	}
	return request
}

// An allocator's answers are charged to the cycle by what they take: a pod of many containers
// spends the budget, is not searched on the nodes that are left, and comes to others in the next
// cycle. An ordinary pod spends nothing.
func TestAnAllocatorsAnswersAreChargedToTheCycle(t *testing.T) {
	const count, nics = 40, 100
	s := allocation.New(klog.Logger{}, nil, allocation.Named{File: "built in", Plugin: kubeletplugin.New()})
	s.SetSearchBudgets(allocation.SearchBudgets{Node: time.Millisecond, Cycle: 5 * time.Millisecond, StepsOnly: true})
	var nodes []*allocation.Node
	for n := range count {
		nodes = append(nodes, nicNode(t, s, n, nics))
	}
	cycle := func(request *request.Request) (searched map[int]bool, budget *allocation.Budget) {
		searched, budget = map[int]bool{}, s.BeginCycle(request)
		for n, node := range nodes {
			verdict, err := s.FitWithin(t.Context(), node, request, budget)
			if err != nil {
				t.Fatal(err)
			}
			if !verdict.NotSearched && !verdict.Fits {
				t.Fatalf("the pod does not fit: %+v", verdict)
			}
			if verdict.Fits {
				searched[n] = true
			}
		}
		if budget.Refused() != count-len(searched) {
			t.Errorf("%d nodes are not searched, the budget says %d", count-len(searched), budget.Refused())
		}
		return searched, budget
	}
	if searched, budget := cycle(podOf(2)); len(searched) != count || budget.Spent() > 0 {
		t.Errorf("for the ordinary pod %d nodes are searched, and it spends %d steps", len(searched), budget.Spent())
	}
	hard := podOf(50)
	first, budget := cycle(hard)
	if len(first) == 0 || len(first) == count || budget.Spent() == 0 {
		t.Errorf("for the hard pod %d nodes of %d are searched, and it spends %d steps", len(first), count,
			budget.Spent())
	}
	second, _ := cycle(hard)
	maps.DeleteFunc(second, func(n int, _ bool) bool { return first[n] })
	if len(second) == 0 {
		t.Error("the second try comes to no other node")
	}
}

// An allocator's answers that cost little on each node cost the cycle: a pod that counts eight
// devices is not searched on thousands of nodes at once, and comes to the others in the next cycle.
func TestSmallAnswersOfAnAllocatorAreBoundedForTheCycle(t *testing.T) {
	const count, nics = 2_000, 8
	s := allocation.New(klog.Logger{}, nil, allocation.Named{File: "built in", Plugin: kubeletplugin.New()})
	s.SetSearchBudgets(allocation.SearchBudgets{Node: time.Millisecond, Cycle: time.Millisecond, StepsOnly: true})
	var nodes []*allocation.Node
	for n := range count {
		nodes = append(nodes, nicNode(t, s, n, nics))
	}
	cycle := func(counted int64) (searched int) {
		request := podOf(1)
		counts := types.ResourceList{"a.b/nic": counted}
		request.Pod.RunningContainers["c000"] = types.ContainerInfo{KubeRequests: counts}
		budget := s.BeginCycle(request)
		for _, node := range nodes {
			verdict, err := s.FitWithin(t.Context(), node, request, budget)
			switch {
			case err != nil:
				t.Fatal(err)
			case verdict.Fits:
				searched++
			case !verdict.NotSearched:
				t.Fatalf("the pod does not fit: %+v", verdict)
			}
		}
		if budget.Refused() != count-searched {
			t.Errorf("%d nodes are not searched, the budget says %d", count-searched, budget.Refused())
		}
		return searched
	}
	if searched := cycle(2); searched != count {
		t.Errorf("for two devices %d nodes of %d are searched", searched, count)
	}
	if searched := cycle(nics); searched < count/2 || searched == count {
		t.Errorf("for %d devices %d nodes of %d are searched, want most but not all", nics, searched, count)
	}
	if searched := cycle(nics); searched != count {
		t.Errorf("in the next cycle %d nodes of %d are searched", searched, count)
	}
}

// nicNode returns a node with NICs, in a state of its own.
func nicNode(t *testing.T, s *allocation.Set, number, nics int) *allocation.Node {
	t.Helper()
	info := types.NewNodeInfoWithName(fmt.Sprint("n", number))
	for i := range nics {
		name := types.ResourceName(fmt.Sprintf("resource/group/numa/0/a.b:nic/%d/device", i))
		info.Capacity[name], info.Allocatable[name] = 1, 1
	}
	info.Capacity["a.b/nic"], info.Capacity["a.b/other"] = int64(nics), int64(number) // a state of its own
	return allocation.NodeOf(t, s, info)
}
