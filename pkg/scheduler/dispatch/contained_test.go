// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
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
	for end := time.Now().Add(10 * time.Second); !condition(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// fit asks the only plugin of s whether a pod fits and returns the error without the plugin's name.
func fit(s *Set, node *Node) string {
	_, err := s.Fit(context.Background(), node, asking(1))
	if err == nil {
		return ""
	}
	text := strings.TrimPrefix(err.Error(), `device scheduler "f0": PodFitsDevice: `)
	if !errors.Is(err, ErrNoAnswer) {
		text += " (an answer)"
	}
	return text
}

// A plugin that panics three times in a row is set aside for a second, comes back, panics again, is set aside for two,
// and is as good as new once a call succeeds.
func TestAPluginThatKeepsPanickingIsSetAsideAndComesBack(t *testing.T) {
	clk := stepped()
	var broken bool
	serving := serve(1)
	s := set(t, clk, &fake{fit: func(node *types.NodeInfo, pod *types.PodInfo) (bool, []devicescheduler.PredicateFailureReason, float64) {
		if broken {
			panic("ouch")
		}
		return serving(node, pod)
	}})
	node := nodeWith(t, s, 0)
	step := func(pause time.Duration, breaks bool, want string) {
		t.Helper()
		clk.Step(pause)
		broken = breaks
		if got := fit(s, node); got != want {
			t.Errorf("%s: got %q, want %q", clk.Now().Format(time.TimeOnly), got, want)
		}
	}
	step(0, true, "panic: ouch")
	step(0, true, "panic: ouch")
	step(0, false, "")
	step(0, true, "panic: ouch")
	step(0, true, "panic: ouch")
	step(0, true, "panic: ouch")
	step(0, false, "set aside until 12:00:01 after 3 failures in a row: panic: ouch")
	if got := s.Pause(); got != time.Second {
		t.Errorf("pause %v, want 1s", got)
	}
	step(time.Second, true, "panic: ouch")
	step(time.Second, false, "set aside until 12:00:03 after 4 failures in a row: panic: ouch")
	step(time.Second, false, "")
	step(0, true, "panic: ouch")
	step(0, false, "")
	for range 12 {
		step(time.Hour, true, "panic: ouch")
	}
	if got := s.Pause(); got != lastPause {
		t.Errorf("pause %v, want at most %v", got, lastPause)
	}
}

func TestACallThatEndsItsGoroutineIsAFailure(t *testing.T) {
	s := set(t, stepped(), &fake{fit: func(*types.NodeInfo, *types.PodInfo) (bool, []devicescheduler.PredicateFailureReason, float64) {
		runtime.Goexit()
		return true, nil, 1
	}})
	if got, want := fit(s, nodeWith(t, s, 0)), "it ended the goroutine of the call"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestANilReasonIsAPanicOfThePlugin(t *testing.T) {
	s := set(t, stepped(), &fake{fit: func(*types.NodeInfo, *types.PodInfo) (bool, []devicescheduler.PredicateFailureReason, float64) {
		return false, []devicescheduler.PredicateFailureReason{nil}, 1
	}})
	if got := fit(s, nodeWith(t, s, 0)); !strings.HasPrefix(got, "panic: ") {
		t.Errorf("got %q, want a panic", got)
	}
}

// A call hangs. Those who wait for their turn and those who come later are turned away when its deadline has passed; when
// it returns after all, the plugin is asked again.
func TestACallPastItsDeadlineSetsThePluginAsideUntilItReturns(t *testing.T) {
	for name, plugin := range map[string]func(*fake) devicescheduler.DeviceScheduler{
		"calls are serialised": func(f *fake) devicescheduler.DeviceScheduler { return f },
		"calls are concurrent": func(f *fake) devicescheduler.DeviceScheduler { return concurrent{f} },
	} {
		t.Run(name, func(t *testing.T) {
			clk := stepped()
			hang, entered := make(chan struct{}), make(chan struct{})
			var calls atomic.Int32
			serving := serve(1)
			s := set(t, clk, plugin(&fake{fit: func(node *types.NodeInfo, pod *types.PodInfo) (bool, []devicescheduler.PredicateFailureReason, float64) {
				if calls.Add(1) == 1 {
					close(entered)
					<-hang
				}
				return serving(node, pod)
			}}))
			node := nodeWith(t, s, 0)

			first, second := make(chan string, 1), make(chan string, 1)
			go func() { first <- fit(s, node) }()
			<-entered
			if name == "calls are serialised" {
				go func() { second <- fit(s, node) }()
				waitFor(t, "the second call waits for its turn", func() bool { return clk.Waiters() == 2 })
			} else {
				second <- "set aside: an earlier call has not returned"
			}
			clk.Step(callDeadline)
			if got, want := <-first, "no answer within 1s"; got != want {
				t.Errorf("the call that hangs: got %q, want %q", got, want)
			}
			// The one that waits may look just before the first is known to be late; then it looks again.
			var got string
			waitFor(t, "the second call is turned away", func() bool {
				select {
				case got = <-second:
					return true
				default:
					clk.Step(callDeadline)
					return false
				}
			})
			const aside = "set aside: an earlier call has not returned"
			if got != aside {
				t.Errorf("the call that waits: got %q, want %q", got, aside)
			}
			if got := fit(s, node); got != aside {
				t.Errorf("a later call: got %q, want %q", got, aside)
			}
			if got := s.Pause(); got != latePause {
				t.Errorf("pause %v, want %v", got, latePause)
			}
			close(hang)
			waitFor(t, "the plugin is asked again", func() bool { return fit(s, node) == "" })
		})
	}
}

func TestManySlowCallsInARowAreNotTakenForOneThatHangs(t *testing.T) {
	clk := stepped()
	release := make(chan struct{})
	serving := serve(1)
	s := set(t, clk, &fake{fit: func(node *types.NodeInfo, pod *types.PodInfo) (bool, []devicescheduler.PredicateFailureReason, float64) {
		<-release
		return serving(node, pod)
	}})
	node := nodeWith(t, s, 0)
	const calls = 8
	answers := make(chan string, calls)
	for range calls {
		go func() { answers <- fit(s, node) }()
	}
	for i := range calls {
		waitFor(t, "one call runs and the others wait", func() bool { return clk.Waiters() == calls-i })
		clk.Step(callDeadline * 3 / 4) // most calls wait for longer than a deadline
		release <- struct{}{}
		if got := <-answers; got != "" {
			t.Fatalf("call %d: %s", i, got)
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
				fit: func(node *types.NodeInfo, pod *types.PodInfo) (bool, []devicescheduler.PredicateFailureReason, float64) {
					enter()
					return serving(node, pod)
				},
				add:    func(*types.NodeInfo) { enter() },
				remove: func(string) { enter() },
				take:   func(*types.NodeInfo, *types.PodInfo) error { enter(); return nil },
			}))
			inventory := &Inventory{info: types.NewNodeInfoWithName("n"), groups: nodeWith(t, set(t, stepped()), 1).inventory.groups}
			node := &Node{inventory: inventory, info: inventory.info}
			var callers sync.WaitGroup
			for range 4 {
				callers.Go(func() {
					for range 25 {
						if got := fit(s, node); got != "" {
							t.Error(got)
						}
						s.RemoveNode(t.Context(), "n")
						if _, err := s.AddNode(t.Context(), types.NewNodeInfoWithName("n")); err != nil {
							t.Error(err)
						}
						if _, err := s.Node(t.Context(), inventory, []*Holder{{UID: "u", Pod: &types.PodInfo{}}}); err != nil {
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

func TestAPluginThatPanicsWhenAskedWhatItIsIsLeftOut(t *testing.T) {
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
	for _, list := range []types.ResourceList{node.Capacity, node.Allocatable, node.Used, node.KubeCap, node.KubeAlloc} {
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
	*pod = types.PodInfo{Name: "other", NodeName: "elsewhere", RunningContainers: map[string]types.ContainerInfo{"intruder": {DevRequests: types.ResourceList{"x": 1}}}}
}

func TestWhatAPluginDoesToItsArgumentsHarmsNobody(t *testing.T) {
	v := &vandal{fake: &fake{name: "vandal"}}
	v.fit = func(node *types.NodeInfo, pod *types.PodInfo) (bool, []devicescheduler.PredicateFailureReason, float64) {
		v.wreck(node, pod)
		return true, nil, 0
	}
	v.allocate = func(node *types.NodeInfo, pod *types.PodInfo) error { v.wreck(node, pod); return nil }
	v.take = func(node *types.NodeInfo, pod *types.PodInfo) error { v.wreck(node, pod); return nil }

	s := set(t, stepped(), v, gpus())
	node := nodeWith(t, s, 2)
	request := asking(1)
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

// observing is a fake that writes down what it is told of pods.
type observing struct {
	*fake
	told   []string
	broken bool
}

func (o *observing) PodHolds(nodeName, uid string, pod *types.PodInfo) {
	if o.broken {
		panic("ouch")
	}
	o.told = append(o.told, fmt.Sprintf("%s holds on %s as %s", uid, nodeName, pod.Name))
	pod.Name = ""
}

func (o *observing) PodGone(nodeName, uid string) {
	o.told = append(o.told, fmt.Sprintf("%s gone from %s", uid, nodeName))
}

func TestAPluginThatCountsIsToldOfEachPodOnce(t *testing.T) {
	o := &observing{fake: &fake{}}
	if set(t, stepped(), &fake{}).Observes() {
		t.Error("a plugin that does not count observes pods")
	}
	s := set(t, stepped(), &fake{}, o)
	if !s.Observes() {
		t.Fatal("nobody observes pods")
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
	if diff := cmp.Diff(want, o.told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}
