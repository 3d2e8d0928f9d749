// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// minutes is a recorder that writes down what it is told.
type minutes struct {
	mu    sync.Mutex
	lines []string
	limit int
}

func (m *minutes) write(line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines = append(m.lines, line)
}

func (m *minutes) Called(plugin, method string, outcome Outcome, took time.Duration) {
	m.write(fmt.Sprintf("%s %s: %s in %v", plugin, method, outcome, took))
}

func (m *minutes) SetAside(plugin string, aside bool) {
	m.write(fmt.Sprintf("%s aside: %v", plugin, aside))
}
func (m *minutes) StepLimitHit() { m.limit++ }

// read returns what was written since the last time.
func (m *minutes) read() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	lines := m.lines
	m.lines = nil
	return lines
}

// recorded returns the set of one plugin and what its recorder was told.
func recorded(clk clock.WithTicker, plugin devicescheduler.DeviceScheduler) (*Set, *minutes) {
	m := &minutes{}
	return newSet(klog.Background(), clk, m, Named{File: "f0", Plugin: plugin}), m
}

func TestEveryCallIsRecordedWithItsOutcomeAndItsTime(t *testing.T) {
	const pause = 20 * time.Millisecond
	for name, test := range map[string]struct {
		does func()
		fits bool
		want Outcome
	}{
		"it fits":                            {func() {}, true, Answered},
		"it does not fit":                    {func() {}, false, Answered},
		"the plugin panics":                  {func() { panic("ouch") }, true, Panicked},
		"the plugin ends the call's routine": {runtime.Goexit, true, Panicked},
	} {
		t.Run(name, func(t *testing.T) {
			clk := stepped()
			s, m := recorded(clk, &fake{fit: func(*types.NodeInfo, *types.PodInfo) (bool, []devicescheduler.PredicateFailureReason, float64) {
				clk.Step(pause)
				test.does()
				return test.fits, nil, 0
			}})
			node := nodeWith(t, s, 0)
			fit(s, node)
			want := []string{"f0 aside: false", "f0 AddNode: answered in 0s", fmt.Sprintf("f0 PodFitsDevice: %s in %v", test.want, pause)}
			if diff := cmp.Diff(want, m.read()); diff != "" {
				t.Errorf("recorded (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnErrorThatAPluginReturnsIsRecordedAsOne(t *testing.T) {
	no := errors.New("no")
	s, m := recorded(stepped(), &fake{
		allocate: func(*types.NodeInfo, *types.PodInfo) error { return no },
		take:     func(*types.NodeInfo, *types.PodInfo) error { return no },
	})
	node := nodeWith(t, s, 0)
	m.read()
	if _, err := s.Allocate(t.Context(), node, asking(1)); !errors.Is(err, no) {
		t.Fatalf("allocate: error %v", err)
	}
	holder := &Holder{UID: "u", Pod: &types.PodInfo{}}
	if _, err := s.Node(t.Context(), node.inventory, []*Holder{holder, holder}); !errors.Is(err, no) {
		t.Fatalf("take: error %v", err)
	}
	want := []string{"f0 PodAllocate: error in 0s", "f0 TakePodResources: error in 0s"}
	if diff := cmp.Diff(want, m.read()); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

func TestAPluginIsRecordedAsSetAsideUntilItAnswersAgain(t *testing.T) {
	clk := stepped()
	broken := true
	serving := serve(1)
	s, m := recorded(clk, &fake{fit: func(node *types.NodeInfo, pod *types.PodInfo) (bool, []devicescheduler.PredicateFailureReason, float64) {
		if broken {
			panic("ouch")
		}
		return serving(node, pod)
	}})
	node := nodeWith(t, s, 0)
	m.read()
	for range failuresAllowed + 1 {
		fit(s, node)
	}
	clk.Step(firstPause)
	fit(s, node) // fails at once
	clk.Step(2 * firstPause)
	broken = false
	fit(s, node)
	fit(s, node)
	const panicked, answered = "f0 PodFitsDevice: panic in 0s", "f0 PodFitsDevice: answered in 0s"
	want := []string{
		panicked, panicked, panicked, "f0 aside: true", "f0 PodFitsDevice: set_aside in 0s",
		panicked, answered, "f0 aside: false", answered,
	}
	if diff := cmp.Diff(want, m.read()); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

func TestACallThatHangsIsRecordedOnceAndItsPluginAsSetAside(t *testing.T) {
	clk := stepped()
	hang := make(chan struct{})
	s, m := recorded(clk, &fake{fit: func(*types.NodeInfo, *types.PodInfo) (bool, []devicescheduler.PredicateFailureReason, float64) {
		<-hang
		return true, nil, 1
	}})
	node := nodeWith(t, s, 0)
	m.read()
	late := make(chan string, 1)
	go func() { late <- fit(s, node) }()
	waitFor(t, "the call has a deadline", clk.HasWaiters)
	clk.Step(callDeadline)
	<-late
	fit(s, node)
	want := []string{"f0 aside: true", "f0 PodFitsDevice: timeout in 1s", "f0 PodFitsDevice: set_aside in 0s"}
	if diff := cmp.Diff(want, m.read()); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
	close(hang)
	waitFor(t, "the plugin is asked again", func() bool { _, err := s.Fit(t.Context(), node, asking(1)); return err == nil })
	// How often it was turned away until then is chance.
	again := slices.DeleteFunc(m.read(), func(line string) bool { return strings.Contains(line, "set_aside") })
	if diff := cmp.Diff([]string{"f0 PodFitsDevice: answered in 0s", "f0 aside: false"}, again); diff != "" {
		t.Errorf("recorded when the call had returned (-want +got):\n%s", diff)
	}
}

func TestANameThatIsNoTextIsMadeOne(t *testing.T) {
	s, _ := recorded(stepped(), &fake{name: "gpu\xff"})
	if got, want := s.plugins[0].name, "gpu\uFFFD"; got != want {
		t.Errorf("name %q, want %q", got, want)
	}
}

// Two calls at once, of which one hangs: that the other answers does not mean that the plugin is back.
func TestAPluginIsSetAsideWhileOneCallHangsAlthoughAnotherAnswers(t *testing.T) {
	clk := stepped()
	hang, answer := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	s, m := recorded(clk, concurrent{&fake{remove: func(name string) {
		calls.Add(1)
		<-map[string]chan struct{}{"hangs": hang, "answers": answer}[name]
	}}})
	m.read()
	var late, other sync.WaitGroup
	late.Go(func() { s.RemoveNode(t.Context(), "hangs") })
	waitFor(t, "the first call has a deadline", func() bool { return clk.Waiters() == 1 && calls.Load() == 1 })
	clk.Step(callDeadline / 2)
	other.Go(func() { s.RemoveNode(t.Context(), "answers") })
	waitFor(t, "both calls run", func() bool { return clk.Waiters() == 2 && calls.Load() == 2 })
	clk.Step(callDeadline / 2)
	late.Wait()
	close(answer)
	other.Wait()
	want := []string{"f0 aside: true", "f0 RemoveNode: timeout in 1s", "f0 RemoveNode: answered in 500ms"}
	if diff := cmp.Diff(want, m.read()); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
	close(hang)
}

// The walk puts the 20 where most is used, on a, so that the 30 fit nowhere; the search may not try any other way.
func TestEveryAnswerCutShortByTheStepLimitIsCountedAndOneAMinuteIsLogged(t *testing.T) {
	clk := stepped()
	s, m := recorded(clk, &fake{groups: true, fit: func(_ *types.NodeInfo, pod *types.PodInfo) (bool, []devicescheduler.PredicateFailureReason, float64) {
		pod.RunningContainers["main"] = types.ContainerInfo{DevRequests: types.ResourceList{
			"resource/group/gpu/0/memory": 20, "resource/group/gpu/1/memory": 30,
		}}
		return true, nil, 0
	}})
	s.placers.New = func() any { return grouptree.NewPlacer(1) }
	info := types.NewNodeInfoWithName("n")
	info.Allocatable = types.ResourceList{"resource/group/gpu/a/memory": 100, "resource/group/gpu/b/memory": 40}
	info.Used = types.ResourceList{"resource/group/gpu/a/memory": 70, "resource/group/gpu/b/memory": 15}
	inventory, err := s.AddNode(t.Context(), info)
	if err != nil {
		t.Fatal(err)
	}
	node, err := s.Node(t.Context(), inventory, nil)
	if err != nil {
		t.Fatal(err)
	}
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	for _, step := range []struct {
		pause          time.Duration
		counted, lines int
	}{{0, 1, 1}, {limitLogPeriod - 1, 2, 1}, {1, 3, 2}} {
		clk.Step(step.pause)
		if _, err := s.Fit(klog.NewContext(t.Context(), logger), node, asking(2)); err != nil {
			t.Fatal(err)
		}
		lines := len(logger.GetSink().(ktesting.Underlier).GetBuffer().Data())
		if m.limit != step.counted || lines != step.lines {
			t.Errorf("%v later: %d counted and %d logged, want %d and %d", step.pause, m.limit, lines, step.counted, step.lines)
		}
	}
}
