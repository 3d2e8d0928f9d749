// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// stepped returns a clock that stands still.
func stepped() *clocktesting.FakeClock {
	return clocktesting.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
}

// waitFor waits until the condition holds.
func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !condition(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func TestAPluginIsNeverEnteredTwiceAtOnceUnlessItSaysSo(t *testing.T) {
	for name, test := range map[string]struct {
		plugin func(*fake) devicescheduler.DeviceScheduler
		atOnce int32
	}{
		"a plain plugin":                {func(f *fake) devicescheduler.DeviceScheduler { return f }, 1},
		"one that is safe for that use": {func(f *fake) devicescheduler.DeviceScheduler { return concurrent{f} }, 4},
	} {
		t.Run(name, func(t *testing.T) {
			var inside, most atomic.Int32
			var together sync.WaitGroup
			together.Add(int(test.atOnce))
			var gathered atomic.Int32
			enter := func() {
				now := inside.Add(1)
				defer inside.Add(-1)
				for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
				}
				if gathered.Add(1) <= test.atOnce {
					together.Done()
					together.Wait()
				}
			}
			serving := serve(1)
			s := set(t, stepped(), test.plugin(&fake{
				fit: func(node *types.NodeInfo, pod *types.PodInfo) (bool, reasons, float64) {
					enter()
					return serving(node, pod)
				},
				add:    func(*types.NodeInfo) { enter() },
				remove: func(string) { enter() },
				take:   func(*types.NodeInfo, *types.PodInfo) error { enter(); return nil },
			}))
			groups := nodeWith(t, set(t, stepped()), 1).inventory.tree
			inventory := &Inventory{
				info: types.NewNodeInfoWithName("n"), tree: groups, devices: deviceNames{"nvidia.com/gpu": true},
			}
			node := &Node{inventory: inventory, info: inventory.info}
			var callers sync.WaitGroup
			for range 4 {
				callers.Go(func() {
					for range 25 {
						if _, err := s.Fit(t.Context(), node, requestFor(1)); err != nil {
							t.Error(err)
						}
						s.RemoveNode(t.Context(), "n")
						if _, err := s.AddNode(t.Context(), types.NewNodeInfoWithName("n")); err != nil {
							t.Error(err)
						}
						holders := []*Holder{{UID: "u", Pod: &types.PodInfo{}}}
						if _, err := s.Node(t.Context(), inventory, holders); err != nil {
							t.Error(err)
						}
					}
				})
			}
			callers.Wait()
			if got := most.Load(); got != test.atOnce {
				t.Errorf("%d calls at once, want %d", got, test.atOnce)
			}
		})
	}
}

func TestAPluginThatPanicsWhenItDescribesItselfIsLeftOut(t *testing.T) {
	s := set(t, stepped(), panicking{&fake{}}, &fake{fit: serve(1)})
	if len(s.plugins) != 1 {
		t.Errorf("%d plugins, want 1", len(s.plugins))
	}
}

type panicking struct{ *fake }

func (panicking) UsingGroupScheduler() bool { panic("ouch") }

// vandal changes all that it is given, in every call, and keeps it for later.
type vandal struct {
	*fake
	kept []any
}

func (v *vandal) wreck(node *types.NodeInfo, pod *types.PodInfo) {
	lists := []types.ResourceList{node.Capacity, node.Allocatable, node.Used, node.KubeCap, node.KubeAlloc}
	for _, list := range lists {
		clear(list)
	}
	*node = types.NodeInfo{Name: "elsewhere"}
	v.kept = append(v.kept, node)
	if pod == nil {
		return
	}
	for name, container := range pod.RunningContainers {
		clear(container.Requests)
		clear(container.KubeRequests)
		v.kept = append(v.kept, container)
		delete(pod.RunningContainers, name)
	}
	clear(pod.Requests)
	intruder := types.ContainerInfo{DevRequests: types.ResourceList{"x": 1}}
	*pod = types.PodInfo{
		Name: "other", NodeName: "elsewhere", RunningContainers: map[string]types.ContainerInfo{"intruder": intruder},
	}
}

func TestPluginsGetCopiesOfTheirArguments(t *testing.T) {
	v := &vandal{fake: &fake{name: "vandal"}}
	v.fit = func(node *types.NodeInfo, pod *types.PodInfo) (bool, reasons, float64) {
		v.wreck(node, pod)
		return true, nil, 0
	}
	v.allocate = func(node *types.NodeInfo, pod *types.PodInfo) error { v.wreck(node, pod); return nil }
	v.take = func(node *types.NodeInfo, pod *types.PodInfo) error { v.wreck(node, pod); return nil }

	s := set(t, stepped(), v, gpus())
	node := nodeWith(t, s, 2)
	request := requestFor(1)
	before := request.Pod.Clone()
	nodeBefore := node.info.Clone()

	verdict, err := s.Fit(t.Context(), node, request)
	if err != nil || !verdict.Fits {
		t.Fatalf("fit: %v, error %v", verdict, err)
	}
	allocation, err := s.Allocate(t.Context(), node, request)
	if err != nil {
		t.Fatal(err)
	}
	if allocation.Name != "p" || allocation.NodeName != "n" || len(allocation.RunningContainers) != 1 {
		t.Errorf("allocation is %+v", allocation)
	}
	holder := NewHolder("u", allocation, request.Containers)
	allocated := allocation.Clone()
	full, err := s.Node(t.Context(), node.inventory, []*Holder{holder, holder})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(types.ResourceList{"resource/group/gpu/GPU-1/cards": 2}, full.info.Used); diff != "" {
		t.Errorf("used (-want +got):\n%s", diff)
	}
	for what, pair := range map[string][2]any{
		"the request":    {before, request.Pod},
		"the node":       {nodeBefore, node.info},
		"the allocation": {allocated, holder.Pod},
	} {
		if diff := cmp.Diff(pair[0], pair[1], cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s has changed (-before +after):\n%s", what, diff)
		}
	}
}

// observing is a fake that writes down what is reported of pods.
type observing struct {
	*fake
	reported []string
	broken   bool
}

func (o *observing) PodHolds(nodeName, uid string, pod *types.PodInfo) {
	if o.broken {
		panic("ouch")
	}
	o.reported = append(o.reported, fmt.Sprintf("%s holds on %s as %s", uid, nodeName, pod.Name))
	pod.Name = ""
}

func (o *observing) PodGone(nodeName, uid string) {
	o.reported = append(o.reported, fmt.Sprintf("%s gone from %s", uid, nodeName))
}

func TestAPluginThatCountsIsNotifiedOfEachPodOnce(t *testing.T) {
	o := &observing{fake: &fake{}}
	if set(t, stepped(), &fake{}).Observes() {
		t.Error("a plugin that does not count observes pods")
	}
	s := set(t, stepped(), &fake{}, o)
	if !s.Observes() {
		t.Fatal("no plugin observes pods")
	}
	pod := &types.PodInfo{Name: "p"}
	ctx := t.Context()
	o.broken = true
	s.PodHolds(ctx, "n", "u1", pod)
	o.broken = false
	s.PodHolds(ctx, "n", "u1", pod)
	s.PodHolds(ctx, "n", "u1", pod)
	s.PodGone(ctx, "u2")
	s.PodHolds(ctx, "m", "u2", pod)
	s.PodGone(ctx, "u1")
	s.PodGone(ctx, "u1")
	want := []string{"u1 holds on n as p", "u2 holds on m as p", "u1 gone from n"}
	if diff := cmp.Diff(want, o.reported); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
}
