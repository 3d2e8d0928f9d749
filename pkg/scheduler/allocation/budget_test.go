// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"fmt"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// hopeless makes a plugin translate every request into one that no placement serves, which only a
// search over all placements finds out: numbers that add up to no device's memory.
func hopeless() *fake {
	plugin := &fake{groups: true}
	plugin.fit = func(_ *types.NodeInfo, pod *types.PodInfo) (bool, reasons, float64) {
		requests := types.ResourceList{}
		for i := range 17 {
			requests[types.ResourceName(fmt.Sprintf("resource/group/gpu/%02d/memory", i))] = int64(1001 + i)
		}
		pod.RunningContainers["main"] = types.ContainerInfo{DevRequests: requests}
		return true, nil, 0
	}
	return plugin
}

// hardNode returns a node of a state of its own on which a hopeless request needs a search.
func hardNode(t *testing.T, s *Set, number int) *Node {
	t.Helper()
	info := listing(fmt.Sprint("n", number), "nvidia.com/gpu")
	for i := range 8 {
		name := types.ResourceName(fmt.Sprintf("resource/group/gpu/%c/memory", 'a'+i))
		info.Allocatable[name], info.Used[name] = 2990+int64(i), int64(number%7)
	}
	info.Allocatable["resource/group/rest/x/other"] = int64(1 + number)
	return NodeOf(t, s, info)
}

// TestACycleSpendsItsBudgetAndGoesOnWithOtherNodes tries a hopeless pod on a cluster again and
// again: each cycle searches as many nodes as its budget is for, never one that is known, until all
// are known.
func TestACycleSpendsItsBudgetAndGoesOnWithOtherNodes(t *testing.T) {
	const count = 60
	clk := stepped()
	s, _ := recorded(clk, hopeless())
	s.SetSearchBudgets(SearchBudgets{Node: time.Millisecond, Cycle: 10 * time.Millisecond, StepsOnly: true})
	var nodes []*Node
	for i := range count {
		nodes = append(nodes, hardNode(t, s, i))
	}
	known := 0
	for try := 1; known < count; try++ {
		if try > count {
			t.Fatalf("after %d tries only %d nodes are known", try, known)
		}
		clk.Step(time.Minute)
		budget, now := s.BeginCycle(requestFor(1)), 0
		for _, node := range nodes {
			verdict, err := s.FitWithin(t.Context(), node, requestFor(1), budget)
			switch {
			case err != nil || verdict.Fits:
				t.Fatalf("%+v, %v", verdict, err)
			case !verdict.NotSearched && !verdict.LimitHit:
				t.Fatalf("the node needs no search: %+v", verdict)
			case !verdict.NotSearched:
				now++
			}
		}
		if now < known || now > known+10 {
			t.Fatalf("try %d: %d nodes are known, %d were before; a budget is for 10", try, now, known)
		}
		if known = now; budget.Refused() != count-now {
			t.Errorf("try %d: %d nodes were not searched, the budget says %d", try, count-now, budget.Refused())
		}
	}
}

// TestRotationReachesNodesThatComeLast has nodes that change before each try, so that nothing that
// was found is known: still each node gets its turn.
func TestRotationReachesNodesThatComeLast(t *testing.T) {
	const count = 40
	clk := stepped()
	s, _ := recorded(clk, hopeless())
	s.SetSearchBudgets(SearchBudgets{Node: time.Millisecond, Cycle: 10 * time.Millisecond, StepsOnly: true})
	searched := map[int]bool{}
	for try := range 40 {
		clk.Step(time.Minute)
		budget := s.BeginCycle(requestFor(1))
		for i := range count {
			node := hardNode(t, s, i+count*try)
			node.info.Name = fmt.Sprint("n", i)
			verdict, err := s.FitWithin(t.Context(), node, requestFor(1), budget)
			if err != nil {
				t.Fatal(err)
			}
			searched[i] = searched[i] || !verdict.NotSearched
		}
	}
	for i := range count {
		if !searched[i] {
			t.Errorf("node %d never has its turn", i)
		}
	}
}

// TestAllSearchesTogetherHaveAPartOfTheTime begins cycles of ever new requests without a pause.
func TestAllSearchesTogetherHaveAPartOfTheTime(t *testing.T) {
	clk := stepped()
	s, _ := recorded(clk, hopeless())
	budgets := SearchBudgets{Node: time.Millisecond, Cycle: 10 * time.Millisecond, StepsOnly: true}
	s.SetSearchBudgets(budgets)
	steps, number := 0, 0
	spend := func(pods int) {
		for range pods {
			number++
			request := requestFor(int64(number))
			budget := s.BeginCycle(request)
			before := budget.steps.Load()
			for i := range 20 {
				if _, err := s.FitWithin(t.Context(), hardNode(t, s, 20*number+i), request, budget); err != nil {
					t.Fatal(err)
				}
			}
			steps += int(max(0, before-budget.steps.Load()))
		}
	}
	spend(60)
	if most := int(stepsIn(reserve*budgets.Cycle)) * 5 / 4; steps > most {
		t.Errorf("%d steps at once, want %d at most", steps, most)
	}
	steps = 0
	clk.Step(time.Second)
	spend(60)
	if most := int(stepsIn(time.Second) / 20 * 5 / 4); steps == 0 || steps > most {
		t.Errorf("%d steps a second later, want some and at most %d", steps, most)
	}
}

// TestAnOrdinaryRequestNeedsNoBudget places one when nothing is left.
func TestAnOrdinaryRequestNeedsNoBudget(t *testing.T) {
	s, _ := recorded(stepped(), gpus())
	s.SetSearchBudgets(SearchBudgets{Node: time.Millisecond, Cycle: time.Millisecond})
	budget := s.BeginCycle(requestFor(1))
	budget.steps.Store(0)
	verdict, err := s.FitWithin(t.Context(), nodeWith(t, s, 1), requestFor(1), budget)
	if err != nil || !verdict.Fits || budget.Refused() != 0 {
		t.Errorf("%+v, %v", verdict, err)
	}
}

// TestFreeStepsBelongToTheCycle takes them all.
func TestFreeStepsBelongToTheCycle(t *testing.T) {
	s, _ := recorded(stepped(), gpus())
	budget := s.BeginCycle(requestFor(1))
	budget.steps.Store(0)
	fit := func(gpus int) Verdict {
		t.Helper()
		verdict, err := s.FitWithin(t.Context(), nodeWith(t, s, gpus), requestFor(1), budget)
		if err != nil {
			t.Fatal(err)
		}
		return verdict
	}
	if verdict := fit(1); !verdict.Fits {
		t.Errorf("with free steps: %+v", verdict)
	}
	if left := budget.free.Load(); left >= freeInCycle {
		t.Errorf("%d free steps are left of %d: none was counted", left, freeInCycle)
	}
	budget.free.Store(0)
	if verdict := fit(2); !verdict.NotSearched || budget.Refused() != 1 {
		t.Errorf("without free steps: %+v, the budget says that %d nodes were not searched", verdict, budget.Refused())
	}
}
