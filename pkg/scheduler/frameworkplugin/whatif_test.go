// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// A question chooses the devices that the scheduler would; what it reserves, and what it searches,
// is its own.
func TestAWhatIfChangesNothing(t *testing.T) {
	f := newFixture(t, []*v1.Node{newNode("n1", "a", "b")})
	pod := newPod("asked", 1)
	whatIf := f.plugin.WhatIf(f.framework)
	states := f.plugin.nodes.Copy()
	whatIf.Answer(states)
	state := framework.NewCycleState()
	if _, status := whatIf.PreFilter(t.Context(), state, pod, f.nodes()); !status.IsSuccess() {
		t.Fatal(status)
	}
	if c := whatIf.cycleOf(state); c.budget != nil {
		t.Error("its searches are charged to the budget that all cycles share")
	}
	if status := whatIf.Filter(t.Context(), state, pod, f.nodes()[0]); !status.IsSuccess() {
		t.Fatal(status)
	}
	chosen, err := whatIf.Choose(t.Context(), state, pod, f.nodes()[0])
	if err != nil || chosen == nil {
		t.Fatalf("chose %v, %v", chosen, err)
	}
	if states.Reserved("n1", pod.UID) == "" {
		t.Error("nothing is reserved where the question is asked")
	}
	if f.plugin.nodes.Reserved("n1", pod.UID) != "" {
		t.Error("devices are reserved in the live state")
	}
	f.reserve(pod, "n1")
	if got, want := states.Reserved("n1", pod.UID), f.plugin.nodes.Reserved("n1", pod.UID); got != want {
		t.Errorf("the question chose %s, the scheduler %s", got, want)
	}
}
