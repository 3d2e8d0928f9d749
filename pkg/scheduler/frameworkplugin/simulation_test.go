// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// simulate does what upstream's DefaultPreemption does on a node: it takes all pods away and brings
// back one after the other as long as the pod fits. It returns those that have to go, or the status
// for which it gives up.
func (f *fixture) simulate(
	state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo,
) (victims []string, status *fwk.Status) {
	f.Helper()
	state, node = state.Clone(), node.Snapshot()
	pods := node.GetPods()
	all := make([]fwk.PodInfo, len(pods))
	copy(all, pods)
	remove := func(victim fwk.PodInfo) *fwk.Status {
		if err := node.RemovePod(klog.Logger{}, victim.GetPod()); err != nil {
			f.Fatal(err)
		}
		return f.framework.RunPreFilterExtensionRemovePod(f.Context(), state, pod, victim, node)
	}
	for _, victim := range all {
		if status := remove(victim); !status.IsSuccess() {
			return nil, status
		}
	}
	if status := f.framework.RunFilterPlugins(f.Context(), state, pod, node); !status.IsSuccess() {
		return nil, status
	}
	for _, victim := range all {
		node.AddPodInfo(victim)
		status := f.framework.RunPreFilterExtensionAddPod(f.Context(), state, pod, victim, node)
		if !status.IsSuccess() {
			return nil, status
		}
		if f.framework.RunFilterPlugins(f.Context(), state, pod, node).IsSuccess() {
			continue
		}
		if status := remove(victim); !status.IsSuccess() {
			return nil, status
		}
		victims = append(victims, victim.GetPod().Name)
	}
	return victims, nil
}

// A simulation of evictions has as much as one node may cost. One that needs more gives up: no pod
// has to go because a search was not made.
func TestASimulationOfEvictionsIsMadeAsAWholeOrGivenUp(t *testing.T) {
	// The hard pod fits if one device holds three of its parts: if no victim stays there. Otherwise
	// only a search over all placements finds out that it does not.
	const victims = 40
	info, node := sdk.NewNodeInfoWithName("n"), newNode("n")
	for i := range 8 {
		sdk.AddGroupResource(info.Allocatable, fmt.Sprintf("pair/p/gpu/%d/memory", i), int64(2990+i+i/7*200))
	}
	var err error
	if node.Annotations[deviceinfo.Annotation], err = deviceinfo.EncodeNode(info); err != nil {
		t.Fatal(err)
	}
	nodes := []*v1.Node{node}
	var pods []*v1.Pod
	for i := range victims {
		name, takes := fmt.Sprintf("victim-%02d", i), 1+i%8/7*200
		device := fmt.Sprintf("resource/group/pair/p/gpu/%d/memory", i%8)
		pods = append(pods, assumed(annotated(newPod(name, 0), fmt.Sprintf(
			`{"podname":%q,"nodename":"n","runningcontainer":{"main":{"devrequests":{%q:%d},"allocatefrom":{%q:%q}}}}`,
			name, device, takes, device, device)), "n"))
	}
	f := newFixture(t, nodes, pods...)
	for name, test := range map[string]struct {
		budget time.Duration
		pod    *v1.Pod
		gives  bool // up
	}{
		"an ordinary pod": {time.Millisecond, annotated(newPod("ordinary", 0),
			`{"runningcontainer":{"main":{"requests":{"pair/a/gpu/0/memory":3190}}}}`), false},
		"a hard pod": {time.Millisecond, hardPod("hard"), true},
	} {
		t.Run(name, func(t *testing.T) {
			f.plugin.schedulers.SetSearchBudgets(
				allocation.SearchBudgets{Node: test.budget, Cycle: 100 * test.budget, StepsOnly: true})
			state := framework.NewCycleState()
			if _, status := f.plugin.PreFilter(t.Context(), state, test.pod, f.nodes()); !status.IsSuccess() {
				t.Fatal(status)
			}
			if _, status := f.plugin.PostFilter(t.Context(), state, test.pod, nil); status.Code() != fwk.Unschedulable {
				t.Fatal(status)
			}
			victims, status := f.simulate(state, test.pod, f.nodes()[0])
			if gaveUp := status.Code() == fwk.Error; gaveUp != test.gives || !gaveUp && len(victims) == 0 {
				t.Errorf("it gives up: %v (%v), victims %v", gaveUp, status, victims)
			}
		})
	}
}
