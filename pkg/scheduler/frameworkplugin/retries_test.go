// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// hardNodes returns nodes of different states, on each of which only a search over all placements
// finds out that hardPod does not fit: 17 parts of which each device holds two.
func hardNodes(count int) (nodes []*v1.Node) {
	for n := range count {
		info := sdk.NewNodeInfoWithName(fmt.Sprintf("n%04d", n))
		for i := range 8 {
			sdk.AddGroupResource(info.Allocatable, fmt.Sprintf("pair/p/gpu/%d/memory", i), int64(2990+i))
		}
		sdk.AddGroupResource(info.Allocatable, "other/x/size", int64(1+n))
		node := newNode(info.Name)
		annotation, err := deviceinfo.EncodeNode(info)
		if err != nil {
			panic(err)
		}
		node.Annotations[deviceinfo.Annotation] = annotation
		nodes = append(nodes, node)
	}
	return nodes
}

func hardPod(name string) *v1.Pod {
	var parts []string
	for i := range 17 {
		parts = append(parts, fmt.Sprintf(`"pair/a/gpu/%02d/memory":%d`, i, 1001+i))
	}
	return annotated(newPod(name, 0), `{"runningcontainer":{"main":{"requests":{`+strings.Join(parts, ",")+`}}}}`)
}

// filterAll runs a pod's cycle up to PostFilter, for a pod that fits nowhere. It returns how many
// nodes have which reason.
func (f *fixture) filterAll(pod *v1.Pod) (reasons map[string]int, post *fwk.Status) {
	f.Helper()
	reasons = map[string]int{}
	state := framework.NewCycleState()
	if _, status := f.plugin.PreFilter(f.Context(), state, pod, f.nodes()); !status.IsSuccess() {
		f.Fatal(status)
	}
	for _, node := range f.nodes() {
		if status := f.plugin.Filter(f.Context(), state, pod, node); status.IsSuccess() {
			f.Fatalf("the pod fits node %s", node.Node().Name)
		} else {
			reasons[status.Message()]++
		}
	}
	_, post = f.plugin.PostFilter(f.Context(), state, pod, nil)
	return reasons, post
}

// Nodes that no budget is left for say so, no pod is evicted for the pod, and it is tried again
// until all nodes are known.
func TestAPodIsTriedAgainUntilAllNodesAreSearched(t *testing.T) {
	const count = 12
	pod := hardPod("hard")
	f := newFixture(t, hardNodes(count))
	f.plugin.schedulers.SetSearchBudgets(
		allocation.SearchBudgets{Node: 5 * time.Millisecond, Cycle: 20 * time.Millisecond, StepsOnly: true})
	notSearched, tries := count, 0
	for notSearched > 0 {
		if tries++; tries > count {
			t.Fatalf("after %d tries %d nodes are not searched", tries, notSearched)
		}
		reasons, post := f.filterAll(pod)
		notSearched = 0
		for reason, nodes := range reasons {
			switch {
			case strings.Contains(reason, "--device-cycle-budget"):
				notSearched = nodes
			case !strings.Contains(reason, "--device-search-budget"):
				t.Fatalf("%d nodes %s: want them cut short or not searched", nodes, reason)
			}
		}
		if evicts := post.Code() == fwk.Unschedulable; evicts != (notSearched == 0) {
			t.Errorf("%d nodes are not searched, and others may evict pods: %v", notSearched, evicts)
		}
		if notSearched == 0 {
			continue
		}
		await(t, "the pod waits to be tried again", f.clock.HasWaiters)
		f.clock.Step(retryInterval)
		if got := <-f.activated; len(got) != 1 || got["hard"] == nil {
			t.Errorf("tried again were %v", got)
		}
	}
	if tries < 2 {
		t.Error("one try was enough: nothing was tested")
	}
}

// Pods that are tried again take turns, and one that is added twice has one turn.
func TestPodsAreTriedAgainOneAtATime(t *testing.T) {
	f := newFixture(t, nil)
	for _, name := range []string{"a", "b", "a"} {
		f.plugin.retries.add(newPod(name, 1))
	}
	var order []string
	for range 2 {
		await(t, "a pod waits", f.clock.HasWaiters)
		f.clock.Step(retryInterval)
		for name := range <-f.activated {
			order = append(order, name)
		}
	}
	await(t, "the loop waits", f.clock.HasWaiters)
	f.clock.Step(retryInterval)
	await(t, "the loop has ended", func() bool {
		f.plugin.retries.mu.Lock()
		defer f.plugin.retries.mu.Unlock()
		return !f.plugin.retries.running
	})
	if !slices.Equal(order, []string{"a", "b"}) {
		t.Errorf("tried again were %v", order)
	}
}

// A pod that requests too much is refused before any node is looked at, in words that name it.
func TestPodsThatAreTooLargeAreNamed(t *testing.T) {
	requests := func(count int) string {
		var parts []string
		for i := range count {
			parts = append(parts, fmt.Sprintf(`"gpu/%d/cards":1`, i))
		}
		return `{"runningcontainer":{"main":{"requests":{` + strings.Join(parts, ",") + `}}}}`
	}
	many := newPod("many", 1)
	for i := range request.MaxPodContainers {
		many.Spec.Containers = append(many.Spec.Containers, v1.Container{Name: fmt.Sprint("c", i)})
	}
	f := newFixture(t, []*v1.Node{newNode("n", "A")})
	for want, pod := range map[string]*v1.Pod{
		"the pod requests devices and has 257 containers, more than 256: make several pods of it": many,
		"annotation KubeDevice/DeviceInfo is 36934 bytes long, a pod may request devices in 32768 at most: request " +
			"fewer, in fewer containers, or use shorter names": annotated(newPod("long", 0), requests(2000)),
	} {
		_, status := f.fit(pod, "n")
		if status.Code() != fwk.UnschedulableAndUnresolvable || status.Message() != want {
			t.Errorf("got  %v %s\nwant %s", status.Code(), status.Message(), want)
		}
	}
}
