// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubedevice/kubedevice/pkg/plugincall"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
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
	f.Set = newSet(klog.Background(), f.clock, f.minutes, ordinary, Named{File: "f0", Plugin: make(plugin)})
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

// ask asks whether a request fits a node. When the call hangs, its limit passes.
func (f *fixture) ask(node string, request *Request) error {
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
			f.clock.Step(callLimit)
		}
	}
}

// answer says how the plugin answered, with the error's text after the plugin's name up to the
// first semicolon.
func (f *fixture) answer(node string, gpus int64) string {
	f.Helper()
	before := f.calls.Load()
	err := f.ask(node, asking(gpus))
	if err == nil {
		return "fits"
	}
	if !errors.Is(err, ErrNoAnswer) {
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

// A request that fails on two nodes is not tried on others, for a time that doubles while it fails.
// Others go on.
func TestARequestThatFailsIsKeptFromThePluginByItself(t *testing.T) {
	f := newFixture(t, plainly)
	broken := true
	f.fails = func(_, _ string, gpus int64) string {
		if broken && gpus == 3 {
			return "panic"
		}
		return ""
	}
	f.run(
		step{0, "a", 3, ofRequest},
		step{0, "a", 3, notCalled + ofRequest},
		step{0, "a", 1, "fits"},
		step{0, "b", 3, ofRequest},
		step{0, "c", 3, notCalled + ofRequest},
		step{0, "c", 2, "fits"},
		step{firstPause, "a", 3, ofRequest},
		step{firstPause, "a", 3, notCalled + ofRequest},
		step{firstPause, "a", 3, ofRequest},
	)
	f.wantBlamed("request", "request", "request", "request")
	for range 10 {
		f.run(step{time.Hour, "a", 3, ofRequest})
	}
	f.run(step{lastPause - 1, "a", 3, notCalled + ofRequest}, step{1, "a", 3, ofRequest})
	broken = false
	f.run(
		step{lastPause, "a", 3, "fits"},
		step{0, "b", 3, "fits"},
	)
	broken = true
	f.run(
		step{0, "a", 3, ofRequest},
		step{firstPause, "a", 3, ofRequest}, // the time began anew
	)
}

func TestOneNodeThatMakesARequestFailDoesNotKeepItFromOthers(t *testing.T) {
	f := newFixture(t, plainly)
	f.fails = func(node, _ string, gpus int64) string {
		if node == "a" && gpus == 3 {
			return "panic"
		}
		return ""
	}
	f.run(
		step{0, "a", 3, ofRequest},
		step{0, "b", 3, "fits"},
		step{0, "c", 3, "fits"},
		step{0, "a", 3, notCalled + ofRequest},
		step{0, "a", 2, "fits"},
	)
}

func TestANodeForWhichThePluginFailsIsKeptFromItByItself(t *testing.T) {
	f := newFixture(t, plainly)
	broken := true
	f.fails = func(node, _ string, _ int64) string {
		if broken && node == "b" {
			return "panic"
		}
		return ""
	}
	f.run(
		step{0, "a", 3, "fits"},
		step{0, "b", 3, ofNode},
		step{0, "b", 2, notCalled + ofNode},
		step{0, "c", 3, "fits"},
	)
	f.wantBlamed("node")
	f.run( // a probe of our own is what fails next
		step{firstPause, "b", 2, notCalled + ofNode},
		step{firstPause, "b", 2, notCalled + ofNode},
	)
	broken = false
	f.run(
		step{0, "b", 2, notCalled + ofNode},
		step{firstPause, "b", 2, "fits"},
		step{0, "b", 3, "fits"},
	)
	f.wantBlamed()
}

func TestAPluginThatFailsForPlainRequestsIsQuarantinedAndComesBack(t *testing.T) {
	for name, answered := range map[string][]step{
		"it answered for two nodes": {{0, "a", 1, "fits"}, {0, "b", 1, "fits"}},
		"it answered for one":       {{0, "a", 1, "fits"}},
		"it answered for another":   {{0, "c", 1, "fits"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, plainly)
			f.run(answered...)
			broken := true
			f.fails = func(string, string, int64) string {
				if broken {
					return "panic"
				}
				return ""
			}
			f.run(
				step{0, "a", 3, ofPlugin},
				step{0, "a", 1, notCalled + ofPlugin},
				step{0, "c", 2, notCalled + ofPlugin},
			)
			f.wantBlamed("plugin")
			f.run(
				step{firstPause, "c", 1, notCalled + ofPlugin},
				step{firstPause, "c", 1, notCalled + ofPlugin},
				step{firstPause, "c", 1, notCalled + ofPlugin},
			)
			if err := f.ask("c", asking(1)); RetryAfter(err) != 4*firstPause {
				t.Errorf("to be tried again after %v, want %v", RetryAfter(err), 4*firstPause)
			}
			broken = false
			f.run(
				step{4*firstPause - 1, "c", 1, notCalled + ofPlugin},
				step{1, "c", 1, "fits"},
				step{0, "a", 3, "fits"},
			)
			if _, err := f.AddNode(t.Context(), types.NewNodeInfoWithName("d")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAPluginThatFailsFromTheStartIsQuarantinedOnTheSecondNode(t *testing.T) {
	f := newFixture(t, plainly)
	broken := true
	f.fails = func(string, string, int64) string {
		if broken {
			return "panic"
		}
		return ""
	}
	f.run(
		step{0, "a", 3, ofNode},
		step{0, "b", 3, ofPlugin},
		step{0, "c", 3, notCalled + ofPlugin},
	)
	broken = false
	f.run(step{firstPause, "c", 3, "fits"})
}

// A plugin that fails for a node of which it was told that it is gone is not to blame.
func TestNoProbeIsForANodeThatIsGone(t *testing.T) {
	f := newFixture(t, plainly)
	f.run(step{0, "a", 1, "fits"})
	f.RemoveNode(t.Context(), "a")
	f.fails = func(node, _ string, _ int64) string {
		if node != "c" {
			return "panic"
		}
		return ""
	}
	f.run(
		step{0, "b", 1, ofNode},
		step{0, "c", 1, "fits"},
	)
}

// What a plugin may look at counts: one that may look at names fails for one pod only, one that
// does not for all that request the same.
func TestPodsThatRequestTheSameShareABackOffUnlessThePluginMayLookAtNames(t *testing.T) {
	for name, test := range map[string]struct {
		plugin func(*fake) devicescheduler.DeviceScheduler
		want   string
	}{
		"it may":     {plainly, "fits"},
		"it is pure": {func(f *fake) devicescheduler.DeviceScheduler { return pure{f} }, "not called: " + ofRequest},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, test.plugin)
			f.fails = func(_, pod string, _ int64) string {
				if pod == "evil" {
					return "panic"
				}
				return ""
			}
			evil := asking(3)
			evil.Pod.Name = "evil"
			for _, node := range []string{"a", "b"} {
				if err := f.ask(node, evil); err == nil {
					t.Fatal("the plugin does not fail")
				}
			}
			f.run(step{0, "c", 3, test.want})
		})
	}
}

// One pod's call hangs. Until it returns, a plugin that takes one call at a time takes none; what
// made it hang is kept from it for a while after that, and nothing else is.
func TestARequestThatHangsIsKeptFromThePluginAfterItHasReturned(t *testing.T) {
	const timedOut = "PodFitsDevice: it fails for what this pod requests: no answer within 1s"
	const hangs = "PodFitsDevice: an earlier call of PodFitsDevice has not returned since 12:00:00"
	f := newFixture(t, plainly)
	f.fails = func(_, _ string, gpus int64) string {
		if gpus == 3 {
			return "hang"
		}
		return ""
	}
	f.run(
		step{0, "a", 3, timedOut},
		step{0, "a", 3, notCalled + timedOut},
		step{0, "a", 1, notCalled + hangs},
		step{9 * time.Second, "b", 3, notCalled + hangs},
	)
	want := []string{
		"gpus PodFitsDevice: timeout in 1s", "gpus quarantined: true", "gpus overdue: 1",
		"gpus Probe: not_returned in 0s", "gpus blamed: request",
		"gpus PodFitsDevice: back_off in 0s",
		"gpus PodFitsDevice: not_returned in 0s", "gpus PodFitsDevice: not_returned in 0s",
	}
	if diff := cmp.Diff(want, f.read()); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
	f.release <- struct{}{}
	f.awaitReturn(0)
	f.run(
		step{0, "a", 1, "fits"},
		step{0, "a", 3, notCalled + timedOut},
		step{40*time.Second - 1, "a", 3, notCalled + timedOut}, // it hung for ten
		step{0, "a", 2, "fits"},
		step{1, "a", 3, timedOut},
	)
	f.release <- struct{}{}
	f.awaitReturn(0)
}

// awaitReturn waits until no more than so many calls hang.
func (f *fixture) awaitReturn(calls int) {
	f.Helper()
	waitFor(f.T, "calls return", func() bool {
		f.plugins[0].mu.Lock()
		defer f.plugins[0].mu.Unlock()
		return f.plugins[0].overdue <= calls && f.plugins[0].caller.Blocked() == nil
	})
}

// Which of the two makes the plugin hang, the request or the node, is found out when the call has
// returned.
func TestANodeForWhichThePluginHangsDoesNotKeepRequestsFromOthers(t *testing.T) {
	f := newFixture(t, plainly)
	broken := true
	f.fails = func(node, _ string, _ int64) string {
		if broken && node == "a" {
			return "hang"
		}
		return ""
	}
	f.run(step{0, "b", 3, "fits"})
	const timedOut = "PodFitsDevice: it fails for what this pod requests: no answer within 1s"
	f.run(step{0, "a", 3, timedOut})
	f.release <- struct{}{}
	f.awaitReturn(0)
	if err := f.ask("b", asking(3)); plugincall.OutcomeOf(err) != plugincall.NotReturned {
		t.Errorf("while the probe hangs: %v", err)
	}
	f.release <- struct{}{}
	f.awaitReturn(0)
	f.run(
		step{0, "b", 3, "fits"},
		step{0, "c", 3, "fits"},
		step{0, "a", 1, notCalled + "PodFitsDevice: it fails for this node: no answer within 1s"},
	)
	f.wantBlamed("request", "node")
	broken = false
	f.run(step{lastPause, "a", 3, "fits"})
}

// A plugin that is safe for concurrent use goes on with others while calls hang; a request of which
// a call hangs is not tried again before that returns, however long it takes.
func TestAConcurrentPluginServesOthersWhileARequestHangs(t *testing.T) {
	f := newFixture(t, concurrently)
	var mended atomic.Bool
	f.fails = func(_, _ string, gpus int64) string {
		if gpus == 3 && !mended.Load() {
			return "hang"
		}
		return ""
	}
	const timedOut = "PodFitsDevice: it fails for what this pod requests: no answer within 1s"
	f.run(
		step{0, "a", 3, timedOut},
		step{0, "b", 3, timedOut},
		step{0, "c", 1, "fits"},
		step{time.Hour, "c", 3, notCalled + timedOut},
		step{0, "a", 2, "fits"},
	)
	lines := f.read()
	if slices.Contains(lines, "gpus quarantined: true") || !slices.Contains(lines, "gpus overdue: 2") {
		t.Errorf("recorded %q", lines)
	}
	mended.Store(true)
	close(f.release)
	f.awaitReturn(0)
	f.run(
		step{overduePauses * time.Hour, "c", 3, notCalled + timedOut},
		step{overduePauses * 2 * time.Second, "c", 3, "fits"},
	)
}

func TestANodeWhoseInventoryMakesThePluginFailIsKeptFromItByItself(t *testing.T) {
	s, m := recorded(stepped(), &fake{add: func(node *types.NodeInfo) {
		if node.Name == "bad" {
			panic("ouch")
		}
	}})
	add := func(name string) error {
		_, err := s.AddNode(t.Context(), types.NewNodeInfoWithName(name))
		return err
	}
	for range 3 {
		err := add("bad")
		if !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), "AddNode: it fails for this node") {
			t.Errorf("the bad node: %v", err)
		}
		if err := add("good"); err != nil {
			t.Errorf("the good node: %v", err)
		}
	}
	if lines := m.read(); slices.Contains(lines, "f0 quarantined: true") || !slices.Contains(lines, "f0 blamed: node") {
		t.Errorf("recorded %q", lines)
	}
}

func TestANodeWhoseInventoryMakesThePluginHangIsKeptFromIt(t *testing.T) {
	clk := stepped()
	var calls atomic.Int32
	release := make(chan struct{})
	s := set(t, clk, &fake{add: func(node *types.NodeInfo) {
		if node.Name == "bad" {
			calls.Add(1)
			<-release
		}
	}})
	add := func(name string) error {
		_, err := s.AddNode(t.Context(), types.NewNodeInfoWithName(name))
		return err
	}
	result := make(chan error, 1)
	go func() { result <- add("bad") }()
	waitFor(t, "the call runs", func() bool { return clk.HasWaiters() && calls.Load() == 1 })
	clk.Step(callLimit)
	if err := <-result; plugincall.OutcomeOf(err) != plugincall.TimedOut {
		t.Errorf("the bad node: %v", err)
	}
	clk.Step(9 * callLimit)
	close(release)
	waitFor(t, "the call returns", func() bool { return add("good") == nil })
	clk.Step(overduePauses*10*callLimit - 1)
	if err := add("bad"); plugincall.OutcomeOf(err) != InBackOff {
		t.Errorf("the bad node: %v", err)
	}
	clk.Step(1)
	if err := add("bad"); err != nil || calls.Load() != 2 {
		t.Errorf("the bad node after the pause: %v, %d calls", err, calls.Load())
	}
}

func TestAPodThatHoldsDevicesAndMakesThePluginFailClosesItsNodeOnly(t *testing.T) {
	calls := 0
	s := set(t, stepped(), &fake{name: "p", take: func(_ *types.NodeInfo, pod *types.PodInfo) error {
		if pod.Name == "evil" {
			calls++
			panic("ouch")
		}
		return nil
	}})
	inventory := func(name string) *Inventory {
		inventory, err := s.AddNode(t.Context(), types.NewNodeInfoWithName(name))
		if err != nil {
			t.Fatal(err)
		}
		return inventory
	}
	good := &Holder{UID: "1", Pod: &types.PodInfo{Name: "good"}}
	evil := &Holder{UID: "2", Pod: &types.PodInfo{Name: "evil"}}
	bad, other := inventory("bad"), inventory("other")
	for range 3 {
		_, err := s.Node(t.Context(), bad, []*Holder{good, evil})
		const want = `TakePodResources: it fails for pod "evil" (UID 2)`
		if !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
		node, err := s.Node(t.Context(), other, []*Holder{good})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Fit(t.Context(), node, asking(1)); err != nil {
			t.Error(err)
		}
	}
	if calls != 1 {
		t.Errorf("the plugin was called %d times for the pod, want once", calls)
	}
	if _, err := s.Node(t.Context(), bad, []*Holder{good}); err != nil {
		t.Errorf("without that pod: %v", err)
	}
}

// A request that fails when devices are chosen is known before the next node is chosen for it.
func TestARequestThatFailsInPodAllocateIsKeptFromFilterToo(t *testing.T) {
	for name, plugin := range map[string]func(*fake) devicescheduler.DeviceScheduler{
		"a plain plugin":                   plainly,
		"one whose answers are remembered": func(f *fake) devicescheduler.DeviceScheduler { return pure{f} },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, plugin)
			f.run(step{0, "a", 3, "fits"})
			f.fails = func(_, _ string, gpus int64) string {
				if gpus == 3 {
					return "panic"
				}
				return ""
			}
			if _, err := f.Allocate(t.Context(), f.nodes["a"], asking(3)); !errors.Is(err, ErrNoAnswer) {
				t.Errorf("error %v", err)
			}
			f.run(step{0, "a", 3, "not called: PodAllocate: it fails for what this pod requests: panic: ouch"})
		})
	}
}

func TestBackOffsAreBounded(t *testing.T) {
	b := backOffs{}
	now := time.Now()
	for i := range 2 * maxBackOffs {
		b.add(culprit{BlamedRequest, fmt.Sprint(i)}, "n", "", now.Add(time.Duration(i)))
	}
	b.add(culprit{BlamedRequest, "hangs"}, "n", "", now).overdue++
	b.add(culprit{BlamedRequest, "last"}, "n", "", now.Add(time.Hour))
	if len(b) != maxBackOffs {
		t.Errorf("%d are remembered, want %d", len(b), maxBackOffs)
	}
	for _, id := range []string{"hangs", "last", fmt.Sprint(2*maxBackOffs - 1)} {
		if b[culprit{BlamedRequest, id}] == nil {
			t.Errorf("%q is forgotten", id)
		}
	}
}

// Whatever mixture of requests that panic, end the goroutine or hang one tenant sends, requests of
// others are answered, and the plugin is not quarantined.
func TestNoMixtureOfBadRequestsTakesThePluginFromOthers(t *testing.T) {
	for name, plugin := range map[string]func(*fake) devicescheduler.DeviceScheduler{
		"one call at a time": plainly,
		"concurrent calls":   concurrently,
		"remembered answers": func(f *fake) devicescheduler.DeviceScheduler { return pure{f} },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				badMixture(t, newFixture(t, plugin), rand.New(rand.NewPCG(seed, 0)), name == "concurrent calls")
			}
		})
	}
}

func badMixture(t *testing.T, f *fixture, random *rand.Rand, concurrent bool) {
	kinds := []string{"panic", "exit", "hang"}
	f.fails = func(_, _ string, gpus int64) string {
		if gpus < 10 {
			return ""
		}
		return kinds[gpus%3]
	}
	hung := 0
	letReturn := func(calls int) {
		for ; hung > calls; hung-- {
			f.release <- struct{}{}
		}
		f.awaitReturn(calls)
	}
	for range 200 {
		node := []string{"a", "b", "c"}[random.IntN(3)]
		if random.IntN(2) == 0 {
			err := f.ask(node, asking(10+random.Int64N(30)))
			if !errors.Is(err, ErrNoAnswer) {
				t.Fatalf("a bad request: %v", err)
			}
			if plugincall.OutcomeOf(err) == plugincall.TimedOut {
				hung++
			}
		}
		if !concurrent {
			letReturn(0)
		}
		if err := f.ask(node, asking(1+random.Int64N(4))); err != nil {
			t.Fatalf("a good request: %v", err)
		}
		f.clock.Step(time.Duration(random.Int64N(int64(3 * time.Second))))
		if random.IntN(10) == 0 {
			letReturn(random.IntN(hung + 1))
		}
	}
	letReturn(0)
	for _, on := range f.blamed() {
		if on != "request" {
			t.Errorf("a failure was blamed on: %s", on)
		}
	}
}

// Many nodes are asked at once, as Filter does: the plugin is probed for two of them at most.
func TestFailuresOfOneRequestOnManyNodesAreDiagnosedOnce(t *testing.T) {
	f := newFixture(t, concurrently)
	const count = 16
	var together sync.WaitGroup
	together.Add(count)
	f.fails = func(_, _ string, gpus int64) string {
		if gpus == 3 {
			together.Done()
			together.Wait()
			return "panic"
		}
		return ""
	}
	var asking16 sync.WaitGroup
	for i := range count {
		node := nodeLike(t, f.Set, fmt.Sprint("n", i), 4, 0)
		asking16.Go(func() {
			if _, err := f.Fit(t.Context(), node, asking(3)); !errors.Is(err, ErrNoAnswer) {
				t.Error(err)
			}
		})
	}
	asking16.Wait()
	f.wantBlamed("request", "request")
}
