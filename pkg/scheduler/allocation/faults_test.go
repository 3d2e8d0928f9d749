// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// The times of package pluginhost.
const (
	firstBackOff  = time.Second
	lastBackOff   = time.Minute
	overdueFactor = 4
)

// fixture is the set of one plugin that serves GPUs and fails as the test says, and three nodes
// with GPUs.
type fixture struct {
	*testing.T
	*Set
	clock *clocktesting.FakeClock
	*minutes
	nodes map[string]*Node
	calls atomic.Int64 // of the plugin, for pods of the test

	// fails says how a call for a request of so many GPUs fails on a node: "panic", "exit", "hang"
	// or "". Probes are calls for a pod that is not the test's.
	fails   func(node, pod string, gpus int64) string
	hanging chan struct{} // gets a value when a call hangs
	release chan struct{} // a value ends a call that hangs
}

func newFixture(t *testing.T, make func(*fake) devicescheduler.DeviceScheduler) *fixture {
	t.Helper()
	f := &fixture{
		T: t, clock: stepped(), minutes: &minutes{}, nodes: map[string]*Node{},
		fails: func(string, string, int64) string { return "" }, hanging: chanOf(), release: chanOf(),
	}
	plugin := gpus()
	serve, allocate := plugin.fit, plugin.allocate
	plugin.fit = func(node *types.NodeInfo, pod *types.PodInfo) (bool, reasons, float64) {
		f.fail(node, pod)
		return serve(node, pod)
	}
	plugin.allocate = func(node *types.NodeInfo, pod *types.PodInfo) error {
		f.fail(node, pod)
		return allocate(node, pod)
	}
	plugin.add = func(node *types.NodeInfo) { node.Capacity["nvidia.com/gpu"] = 4 }
	f.Set = newSet(klog.Background(), f.clock, f.minutes, defaultSizes, Named{File: "f0", Plugin: make(plugin)})
	for _, name := range []string{"a", "b", "c"} {
		f.nodes[name] = nodeLike(t, f.Set, name, 4, 0)
	}
	f.read()
	return f
}

func chanOf() chan struct{} { return make(chan struct{}) }

func plainly(f *fake) devicescheduler.DeviceScheduler      { return f }
func concurrently(f *fake) devicescheduler.DeviceScheduler { return concurrent{f} }

func (f *fixture) fail(node *types.NodeInfo, pod *types.PodInfo) {
	if pod.Name != "kubedevice-probe" {
		f.calls.Add(1)
	}
	switch f.fails(node.Name, pod.Name, pod.RunningContainers["main"].KubeRequests["nvidia.com/gpu"]) {
	case "panic":
		panic("ouch")
	case "exit":
		runtime.Goexit()
	case "hang":
		f.hanging <- struct{}{}
		<-f.release
	}
}

// query queries whether a request fits a node. When the call hangs, its limit passes.
func (f *fixture) query(node string, request *request.Request) error {
	f.Helper()
	result := make(chan error, 1)
	go func() {
		_, err := f.Fit(f.Context(), f.nodes[node], request)
		result <- err
	}()
	for {
		select {
		case err := <-result:
			return err
		case <-f.hanging:
			f.clock.Step(pluginhost.CallTimeout)
		}
	}
}

// answer says how the plugin answered, with the error's text after the plugin's name up to the
// first semicolon.
func (f *fixture) answer(node string, gpus int64) string {
	f.Helper()
	before := f.calls.Load()
	err := f.query(node, requestFor(gpus))
	if err == nil {
		return "fits"
	}
	if !errors.Is(err, pluginhost.ErrNoAnswer) {
		f.Fatalf("%v is an answer", err)
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), `device scheduler "gpus": `), ";")
	if f.calls.Load() == before {
		text = "not called: " + text
	}
	return text
}

// step is what a test asks, and the answer that it wants.
type step struct {
	pause time.Duration // before it
	node  string
	gpus  int64
	want  string
}

func (f *fixture) run(steps ...step) {
	f.Helper()
	for i, s := range steps {
		f.clock.Step(s.pause)
		if got := f.answer(s.node, s.gpus); got != s.want {
			f.Errorf("step %d, %d GPUs on %s: got %q, want %q", i, s.gpus, s.node, got, s.want)
		}
	}
}

// blamed returns what failures were blamed on since the last time.
func (f *fixture) blamed() (all []string) {
	for _, line := range f.read() {
		if on, ok := strings.CutPrefix(line, "gpus blamed: "); ok {
			all = append(all, on)
		}
	}
	return all
}

func (f *fixture) wantBlamed(want ...string) {
	f.Helper()
	if diff := cmp.Diff(want, f.blamed()); diff != "" {
		f.Errorf("blamed (-want +got):\n%s", diff)
	}
}

const (
	ofRequest = "PodFitsDevice: it fails for what this pod requests: panic: ouch"
	ofNode    = "PodFitsDevice: it fails for this node: panic: ouch"
	ofPlugin  = "PodFitsDevice: quarantined, because it fails for plain requests too: panic: ouch"
	notCalled = "not called: "
)

// awaitReturn waits until no more than so many calls hang.
func (f *fixture) awaitReturn(calls int) {
	f.Helper()
	waitFor(f.T, "calls return", func() bool {
		return f.overdue.Load() <= int64(calls) && f.plugins[0].State() != pluginhost.Blocked
	})
}
