// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/plugincall"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// minutes is a recorder that writes down what is reported.
type minutes struct {
	mu    sync.Mutex
	lines []string
	limit int

	overdue atomic.Int64 // calls
}

func (m *minutes) write(line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines = append(m.lines, line)
}

func (m *minutes) Called(plugin, method string, outcome pluginhost.Outcome, took time.Duration) {
	m.write(fmt.Sprintf("%s %s: %s in %v", plugin, method, outcome, took))
}

func (m *minutes) Blamed(plugin string, on pluginhost.Blamed) {
	m.write(fmt.Sprintf("%s blamed: %s", plugin, on))
}

func (m *minutes) Quarantined(plugin string, quarantined bool) {
	m.write(fmt.Sprintf("%s quarantined: %v", plugin, quarantined))
}

func (m *minutes) Overdue(plugin string, calls int) {
	m.overdue.Store(int64(calls))
	m.write(fmt.Sprintf("%s overdue: %d", plugin, calls))
}

func (m *minutes) StepLimitHit() { m.limit++ }

func (m *minutes) NotSearched() {}

// read returns what was written since the last time.
func (m *minutes) read() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	lines := m.lines
	m.lines = nil
	return lines
}

// recorded returns the set of one plugin and what its recorder counted.
func recorded(clk clock.WithTicker, plugin devicescheduler.DeviceScheduler) (*Set, *minutes) {
	m := &minutes{}
	return newSet(klog.Background(), clk, m, defaultSizes, Named{File: "f0", Plugin: plugin}), m
}

func TestEveryCallIsRecordedWithItsOutcomeAndItsTime(t *testing.T) {
	const pause = 20 * time.Millisecond
	probed := []string{"f0 Probe: answered in 0s", "f0 blamed: request"}
	for name, test := range map[string]struct {
		does func()
		fits bool
		want pluginhost.Outcome
		then []string
	}{
		"it fits":                            {func() {}, true, plugincall.Answered, nil},
		"it does not fit":                    {func() {}, false, plugincall.Answered, nil},
		"the plugin panics":                  {func() { panic("ouch") }, true, plugincall.Panicked, probed},
		"the plugin ends the call's routine": {runtime.Goexit, true, plugincall.Panicked, probed},
	} {
		t.Run(name, func(t *testing.T) {
			clk := stepped()
			s, m := recorded(clk, &fake{fit: func(_ *types.NodeInfo, pod *types.PodInfo) (bool, reasons, float64) {
				if pod.Name == "p" {
					clk.Step(pause)
					test.does()
				}
				return test.fits, nil, 0
			}})
			node := nodeWith(t, s, 0)
			_, _ = s.Fit(t.Context(), node, requestFor(1)) // the recorder has the outcome
			want := []string{
				"f0 quarantined: false", "f0 overdue: 0", "f0 AddNode: answered in 0s",
				fmt.Sprintf("f0 PodFitsDevice: %s in %v", test.want, pause),
			}
			if diff := cmp.Diff(append(want, test.then...), m.read()); diff != "" {
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
	if _, err := s.Allocate(t.Context(), node, requestFor(1)); !errors.Is(err, no) {
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

func TestANameThatIsNoTextIsMadeOne(t *testing.T) {
	s, _ := recorded(stepped(), &fake{name: "gpu\xff"})
	if got, want := s.plugins[0].Name, "gpu\uFFFD"; got != want {
		t.Errorf("name %q, want %q", got, want)
	}
}

// The walk puts the 20 where most is used, on a, so that the 30 fit nowhere; the search may not try
// any other way.
func TestEveryAnswerCutShortByTheStepLimitIsCountedAndOneAMinuteIsLogged(t *testing.T) {
	clk := stepped()
	plugin := &fake{groups: true}
	plugin.fit = func(_ *types.NodeInfo, pod *types.PodInfo) (bool, reasons, float64) {
		pod.RunningContainers["main"] = types.ContainerInfo{DevRequests: types.ResourceList{
			"resource/group/gpu/0/memory": 20, "resource/group/gpu/1/memory": 30,
		}}
		return true, nil, 0
	}
	s, m := recorded(clk, plugin)
	s.SetSearchBudgets(SearchBudgets{Node: 13 * time.Nanosecond, Cycle: time.Second}) // which is one step
	info := listing("n", "nvidia.com/gpu")
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
		if _, err := s.Fit(klog.NewContext(t.Context(), logger), node, requestFor(2)); err != nil {
			t.Fatal(err)
		}
		lines := len(logger.GetSink().(ktesting.Underlier).GetBuffer().Data())
		if m.limit != step.counted || lines != step.lines {
			t.Errorf("%v later: %d counted and %d logged, want %d and %d",
				step.pause, m.limit, lines, step.counted, step.lines)
		}
	}
}
