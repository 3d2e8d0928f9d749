// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
)

// of is what State returns for a pod that holds nothing.
func (f *fixture) of(info fwk.NodeInfo) *allocation.Node {
	f.Helper()
	node, err := f.cache.State(f.Context(), info, f.pod("stranger", 1), true)
	if err != nil {
		f.Fatal(err)
	}
	return node
}

// refreshed returns the snapshot if it has devices and holds, else another one.
func (f *fixture) refreshed(s Snapshot, info fwk.NodeInfo) Snapshot {
	if known := info.(*framework.NodeInfo); s.NodeInfo != known || s.Devices == nil || !s.Holds() {
		return f.cache.Snapshot(known)
	}
	return s
}

func TestASnapshotHoldsUntilSomethingChanges(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "n-1", "A", "B")
	info := nodeInfo(node)
	var snapshot Snapshot
	step := func(what string, known bool) {
		t.Helper()
		snapshot = f.refreshed(snapshot, info)
		if (snapshot.Devices != nil) != known {
			t.Errorf("%s: known is %t, want %t", what, snapshot.Devices != nil, known)
		}
		if want := f.of(info); snapshot.Devices != nil && snapshot.Devices != want {
			t.Errorf("%s: it is not what State returns", what)
		}
	}
	step("before anything was computed", false)
	step("afterwards", true)
	f.mustReserve(info, f.pod("p", 1))
	step("after a Reserve", false)
	step("and again", true)
	f.cache.Keep("n", "p")
	step("a binding may have taken effect, so the pod itself sees another state", false)
	step("and as long as that is so", false)
	f.cache.Resolve("n", "p")
	f.cache.Unreserve("n", "p")
	step("after an Unreserve", false)
	step("and again", true)
	own := info.(*framework.NodeInfo)
	q := f.bound(f.pod("q", 1), "n", allocated("q", "n", "A"))
	own.AddPod(q)
	step("after a pod came", false)
	step("and again", true)
	if err := own.RemovePod(klog.Background(), q); err != nil {
		t.Fatal(err)
	}
	own.AddPod(f.bound(f.pod("r", 1), "n", allocated("r", "n", "B")))
	step("after another took its place", false)
	step("and again", true)
	own.Pods = slices.Clone(own.Pods[:0])
	step("after a pod group's pods have left the snapshot, which keeps its generation", false)
	step("and again", true)
	f.node("n", "n-1", "A", "B", "C")
	step("after a new inventory that the snapshot has not yet", false)
	step("and again", true)
	info = info.Snapshot()
	step("in a copy", true) // which is in the same state
	f.plugin.broken.Store(true)
	f.annotatedNode("n", "n-1", node.Annotations["KubeDevice/DeviceInfo"])
	if snapshot = f.refreshed(snapshot, info); snapshot.Devices != nil {
		t.Error("a node whose inventory was not taken is known")
	}
	f.plugin.broken.Store(false)
	f.clock.Step(time.Minute)
	step("after the pause until it is taken", false)
	step("and again", true)
	f.deleteNode(f.node("n", "n-1", "A"))
	if snapshot.Holds() {
		t.Error("the snapshot of a node that was deleted holds")
	}
}

func TestASnapshotSaysWhatHasChanged(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*fixture, *framework.NodeInfo)
		want   Change
	}{
		"the inventory": {func(f *fixture, _ *framework.NodeInfo) { f.node("n", "n-1", "A") }, InventoryChange},
		"another node":  {func(f *fixture, _ *framework.NodeInfo) { f.node("n", "n-2", "A", "B") }, InventoryChange},
		"a reservation": {
			func(f *fixture, info *framework.NodeInfo) { f.mustReserve(info, f.pod("p", 1)) }, ReservationChange,
		},
		"a pod that runs": {func(f *fixture, info *framework.NodeInfo) { info.AddPod(f.pod("p", 0)) }, NodeInfoChange},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			info := nodeInfo(f.node("n", "n-1", "A", "B")).(*framework.NodeInfo)
			f.of(info)
			before := f.cache.Snapshot(info)
			test.change(f, info)
			if before.Holds() {
				t.Error("the snapshot holds")
			}
			after := f.cache.Snapshot(info)
			if got := after.ChangeSince(&before); got != test.want {
				t.Errorf("the change is %d, want %d", got, test.want)
			}
		})
	}
}

// After any changes in any order, a snapshot that holds has what State returns, or nothing,
// also for a scheduler's snapshot that lags behind; and one who reads what was written finds each
// that no longer holds.
func TestASnapshotThatHoldsHasWhatStateReturns(t *testing.T) {
	names := slices.Sorted(maps.Keys(steps))
	known, held := 0, 0
	for seed := range uint64(40) {
		c := &cluster{
			fixture: newFixture(t), rand: rand.New(rand.NewPCG(seed, 1)), gpus: []string{"A", "B", "C", "D", "E", "F"},
			inFlight: map[string]*v1.Pod{}, bound: map[string]*v1.Pod{},
		}
		c.node = c.fixture.node("n", "n-1", c.gpus...)
		info := nodeInfo(c.node)
		var snapshot Snapshot
		var writes uint64
		of := c.cache
		var history []string
		for range 100 {
			step := names[c.rand.IntN(len(names))]
			history = append(history, step)
			steps[step](c)
			if c.cache != of { // the scheduler was started again
				snapshot, writes, of = Snapshot{}, 0, c.cache
			}
			if c.rand.IntN(2) == 0 {
				c.update()
				info = nodeInfo(c.node, c.snapshot...)
			}
			before := snapshot
			for range 2 { // before and after the state is computed
				written := false
				writes, _ = c.cache.WrittenSince(writes, func(string) { written = true })
				if snapshot.Devices != nil && snapshot.HoldsInScheduler() && !written && !snapshot.Holds() {
					t.Fatalf("seed %d: nothing was written, and the snapshot does not hold, after:\n%s",
						seed, strings.Join(history, "\n"))
				}
				snapshot = c.refreshed(snapshot, info)
				want := c.of(info)
				if snapshot.Devices == nil {
					continue
				}
				known++
				if snapshot == before {
					held++
				}
				if got, want := c.freeOn(snapshot.Devices), c.freeOn(want); got != want {
					t.Fatalf("seed %d: free are %q, want %q, after:\n%s", seed, got, want, strings.Join(history, "\n"))
				}
			}
		}
	}
	if known == 0 || held == 0 {
		t.Errorf("%d snapshots had devices, and %d held over a step: nothing is tested", known, held)
	}
}
