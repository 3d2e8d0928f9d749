// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
)

// of is what Of returns for a pod that holds nothing.
func (w *world) of(info fwk.NodeInfo) *dispatch.Node {
	w.Helper()
	node, err := w.cache.Of(w.Context(), info, w.pod("stranger", 1), true)
	if err != nil {
		w.Fatal(err)
	}
	return node
}

func TestARosterKnowsANodeUntilSomethingChanges(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.GenericWorkload, true)
	w := newWorld(t)
	node := w.node("n", "n-1", "A", "B")
	info := nodeInfo(node)
	roster := w.cache.NewRoster()
	step := func(what string, known bool) {
		t.Helper()
		roster.Update([]fwk.NodeInfo{info})
		got := roster.At(0)
		if (got != nil) != known {
			t.Errorf("%s: known is %t, want %t", what, got != nil, known)
		}
		if want := w.of(info); got != nil && got != want {
			t.Errorf("%s: it is not what Of returns", what)
		}
	}
	step("before anyone has asked", false)
	step("afterwards", true)
	w.mustReserve(info, w.pod("p", 1))
	step("after a Reserve", false)
	step("and again", true)
	w.cache.Keep("n", "p")
	step("a binding may have taken effect, so the pod itself sees another state", false)
	step("and as long as that is so", false)
	w.cache.Settle("n", "p")
	w.cache.Unreserve("n", "p")
	step("after an Unreserve", false)
	step("and again", true)
	own := info.(*framework.NodeInfo)
	q := w.bound(w.pod("q", 1), "n", allocated("q", "n", "A"))
	own.AddPod(q)
	step("after a pod came", false)
	step("and again", true)
	if err := own.RemovePod(klog.Background(), q); err != nil {
		t.Fatal(err)
	}
	own.AddPod(w.bound(w.pod("r", 1), "n", allocated("r", "n", "B")))
	step("after another took its place", false)
	step("and again", true)
	own.Pods = slices.Clone(own.Pods[:0])
	step("after a pod group's pods have left the snapshot, which keeps its generation", false)
	step("and again", true)
	w.node("n", "n-1", "A", "B", "C")
	step("after a new inventory that the snapshot has not yet", false)
	step("and again", true)
	info = info.Snapshot()
	step("in a copy", true) // which is in the same state
	w.plugin.broken.Store(true)
	w.annotatedNode("n", "n-1", node.Annotations["KubeDevice/DeviceInfo"])
	roster.Update([]fwk.NodeInfo{info})
	if roster.At(0) != nil {
		t.Error("a node whose inventory was not taken is known")
	}
	w.plugin.broken.Store(false)
	w.clock.Step(time.Minute)
	step("after the pause until it is taken", false)
	step("and again", true)
}

func TestARosterFollowsTheSnapshotsList(t *testing.T) {
	w := newWorld(t)
	a, b, c := nodeInfo(w.node("a", "a", "A")), nodeInfo(w.node("b", "b", "B")), nodeInfo(w.node("c", "c", "C"))
	roster := w.cache.NewRoster()
	for _, list := range [][]fwk.NodeInfo{{a, b}, {b, a}, {b, a, c}, {c}, {}, {a, c}} {
		before := roster.Layout()
		roster.Update(list)
		after := roster.Layout()
		if after == before {
			t.Error("another list has the same layout")
		}
		for _, info := range list {
			w.of(info)
		}
		roster.Update(list)
		if roster.Layout() != after {
			t.Error("the same list has another layout")
		}
		for place, info := range list {
			if roster.At(place) == nil || roster.At(place) != w.of(info) {
				t.Errorf("%s is not known", info.Node().Name)
			}
		}
		roster.Update(list)
		for place := range roster.ChangedSince(roster.Updates() - 1) {
			t.Errorf("%s has changed by nothing", list[place].Node().Name)
		}
	}
}

// What has changed is told to those who asked a while ago too; to those who asked long ago, that
// all nodes may have.
func TestARosterTellsWhatHasChangedSince(t *testing.T) {
	w := newWorld(t)
	list := []fwk.NodeInfo{nodeInfo(w.node("a", "a", "A")), nodeInfo(w.node("b", "b", "B")), nodeInfo(w.node("c", "c", "C"))}
	roster := w.cache.NewRoster()
	roster.Update(list)
	for _, info := range list {
		w.of(info)
	}
	roster.Update(list)
	begun := roster.Updates()
	since := func(updates uint64) (places []int) {
		places = slices.Collect(roster.ChangedSince(updates))
		slices.Sort(places)
		return slices.Compact(places)
	}
	for turn, place := range []int{2, 0, 2, 2, 0, 2, 0, 0} {
		info := list[place].(*framework.NodeInfo)
		info.AddPod(w.bound(w.pod(fmt.Sprint("p", turn), 0), info.Node().Name, ""))
		roster.Update(list)
		w.of(info)
		roster.Update(list)
		if got, want := since(roster.Updates()-2), []int{place}; !slices.Equal(got, want) {
			t.Errorf("turn %d: changed lately are %v, want %v", turn, got, want)
		}
		want := [][]int{{2}, {0, 2}}[min(turn, 1)]
		if got := since(begun); !slices.Equal(got, want) && !slices.Equal(got, []int{0, 1, 2}) {
			t.Errorf("turn %d: changed since the beginning are %v, want %v or all", turn, got, want)
		}
	}
	if got := since(begun); len(got) != 3 {
		t.Errorf("what has changed since the beginning is still known to be %v: the changes are not bounded by the nodes", got)
	}
}

// lastSaid returns what a roster of one node said of it, and how often it was updated.
func lastSaid(r *Roster) (*dispatch.Node, uint64) {
	if len(r.seen) == 0 {
		return nil, 0
	}
	return r.At(0), r.Updates()
}

// Whatever happens in whatever order, a roster says the same as Of, or nothing, also for a snapshot
// that lags behind.
func TestARosterSaysWhatOfSays(t *testing.T) {
	names := slices.Sorted(maps.Keys(steps))
	known := 0
	for seed := range uint64(40) {
		c := &cluster{
			world: newWorld(t), rand: rand.New(rand.NewPCG(seed, 1)), gpus: []string{"A", "B", "C", "D", "E", "F"},
			inFlight: map[string]*v1.Pod{}, bound: map[string]*v1.Pod{},
		}
		c.node = c.world.node("n", "n-1", c.gpus...)
		info := nodeInfo(c.node)
		roster, of := c.cache.NewRoster(), c.cache
		var history []string
		for range 100 {
			step := names[c.rand.IntN(len(names))]
			history = append(history, step)
			steps[step](c)
			if c.cache != of { // the scheduler was started again
				roster, of = c.cache.NewRoster(), c.cache
			}
			if c.rand.IntN(2) == 0 {
				c.update()
				info = nodeInfo(c.node, c.snapshot...)
			}
			said, updates := lastSaid(roster)
			roster.Update([]fwk.NodeInfo{info})
			before, want := roster.At(0), c.of(info)
			if updates > 0 && len(slices.Collect(roster.ChangedSince(updates))) == 0 && before != said {
				t.Fatalf("seed %d: after %v, it says something else of a node that has not changed", seed, history)
			}
			roster.Update([]fwk.NodeInfo{info})
			for _, got := range []*dispatch.Node{before, roster.At(0)} {
				if got == nil {
					continue
				}
				known++
				if got, want := c.freeOn(got), c.freeOn(want); got != want {
					t.Fatalf("seed %d: free are %q, want %q, after:\n%s", seed, got, want, strings.Join(history, "\n"))
				}
			}
		}
	}
	if known == 0 {
		t.Error("the roster never knew anything")
	}
}
