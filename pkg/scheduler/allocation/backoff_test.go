// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/plugincall"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
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
		step{firstBackOff, "a", 3, ofRequest},
		step{firstBackOff, "a", 3, notCalled + ofRequest},
		step{firstBackOff, "a", 3, ofRequest},
	)
	f.wantBlamed("request", "request", "request", "request")
	for range 10 {
		f.run(step{time.Hour, "a", 3, ofRequest})
	}
	f.run(step{lastBackOff - 1, "a", 3, notCalled + ofRequest}, step{1, "a", 3, ofRequest})
	broken = false
	f.run(
		step{lastBackOff, "a", 3, "fits"},
		step{0, "b", 3, "fits"},
	)
	broken = true
	f.run(
		step{0, "a", 3, ofRequest},
		step{firstBackOff, "a", 3, ofRequest}, // the back-off began again
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
		step{firstBackOff, "b", 2, notCalled + ofNode},
		step{firstBackOff, "b", 2, notCalled + ofNode},
	)
	broken = false
	f.run(
		step{0, "b", 2, notCalled + ofNode},
		step{firstBackOff, "b", 2, "fits"},
		step{0, "b", 3, "fits"},
	)
	f.wantBlamed()
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
			evil := requestFor(3)
			evil.Pod.Name = "evil"
			for _, node := range []string{"a", "b"} {
				if err := f.query(node, evil); err == nil {
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
	if err := f.query("b", requestFor(3)); plugincall.OutcomeOf(err) != plugincall.NotReturned {
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
	f.run(step{lastBackOff, "a", 3, "fits"})
}

// A plugin that is safe for concurrent use goes on with others while calls hang; a request of which
// a call hangs is not tried again before that returns, however long it takes.
func TestAConcurrentPluginServesOthersWhileARequestHangs(t *testing.T) {
	f := newFixture(t, concurrently)
	var repaired atomic.Bool
	f.fails = func(_, _ string, gpus int64) string {
		if gpus == 3 && !repaired.Load() {
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
	repaired.Store(true)
	close(f.release)
	f.awaitReturn(0)
	f.run(
		step{overdueFactor * time.Hour, "c", 3, notCalled + timedOut},
		step{overdueFactor * 2 * time.Second, "c", 3, "fits"},
	)
}

func TestANodeWhoseInventoryMakesThePluginFailIsKeptFromItByItself(t *testing.T) {
	s, m := recorded(stepped(), &fake{add: func(node *types.NodeInfo) {
		if node.Name == "bad" {
			panic("ouch")
		}
	}})
	add := func(name string) error {
		_, err := s.AddNode(t.Context(), listing(name, "nvidia.com/gpu"))
		return err
	}
	for range 3 {
		err := add("bad")
		if !errors.Is(err, pluginhost.ErrNoAnswer) ||
			!strings.Contains(err.Error(), "AddNode: it fails for this node") {
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
		_, err := s.AddNode(t.Context(), listing(name, "nvidia.com/gpu"))
		return err
	}
	result := make(chan error, 1)
	go func() { result <- add("bad") }()
	waitFor(t, "the call runs", func() bool { return clk.HasWaiters() && calls.Load() == 1 })
	clk.Step(pluginhost.CallTimeout)
	if err := <-result; plugincall.OutcomeOf(err) != plugincall.TimedOut {
		t.Errorf("the bad node: %v", err)
	}
	clk.Step(9 * pluginhost.CallTimeout)
	close(release)
	waitFor(t, "the call returns", func() bool { return add("good") == nil })
	clk.Step(overdueFactor*10*pluginhost.CallTimeout - 1)
	if err := add("bad"); plugincall.OutcomeOf(err) != pluginhost.OutcomeBackOff {
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
		inventory, err := s.AddNode(t.Context(), listing(name, "nvidia.com/gpu"))
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
		if !errors.Is(err, pluginhost.ErrNoAnswer) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
		node, err := s.Node(t.Context(), other, []*Holder{good})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Fit(t.Context(), node, requestFor(1)); err != nil {
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
			if _, err := f.Allocate(t.Context(), f.nodes["a"], requestFor(3)); !errors.Is(err, pluginhost.ErrNoAnswer) {
				t.Errorf("error %v", err)
			}
			f.run(step{0, "a", 3, "not called: PodAllocate: it fails for what this pod requests: panic: ouch"})
		})
	}
}
