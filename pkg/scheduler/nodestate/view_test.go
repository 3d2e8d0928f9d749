// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/request"
)

// held returns which GPUs are in use as a sight has it, and by whom.
func held(t *testing.T, sight *View, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, resource := range sight.Devices.Resources() {
		for _, holder := range sight.Holders {
			if holder.Holds(resource.Name) > 0 {
				text := strings.Split(string(resource.Name), "/")[3] + ":" + holder.UID
				if !sight.Bound[types.UID(holder.UID)] {
					text += "?"
				}
				texts = append(texts, text)
			}
		}
	}
	return strings.Join(texts, " ")
}

func TestAViewShowsBoundPodsAndReservations(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "u", "A", "B", "C")
	bound := f.bound(f.pod("bound", 1), "n", allocated("bound", "n", "A"))
	reserved := f.pod("reserved", 1)
	f.mustReserve(nodeInfo(node, bound), reserved)
	pods := []*v1.Pod{bound}
	view := func() string {
		found, err := f.cache.View(t.Context(), node, pods)
		return held(t, found, err)
	}
	f.want("at first", view(), "A:bound C:reserved?")
	pods = append(pods, f.bound(reserved, "n", allocated("reserved", "n", "C")))
	f.want("after the binding", view(), "A:bound C:reserved")
	if f.cache.Reserved("n", reserved.UID) == "" {
		t.Error("a view has dropped the reservation, which the scheduler's snapshot may still need")
	}
	f.deleteNode(node)
	if _, err := f.cache.View(t.Context(), node, pods); err == nil {
		t.Error("there is a view of a node that is gone")
	}
}

// An estimate counts what bound pods hold, reads little that was not read before, and goes on
// there the next time. Until then it errs toward free.
func TestAnEstimateReadsLittleAtATime(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "u", "A", "B")
	long := f.bound(f.pod("long", 1), "n", allocated("long", "n", "A")+strings.Repeat(" ", request.QuickBytes-200))
	short := f.bound(f.pod("short", 1), "n", allocated("short", "n", "B"))
	used := func(pods ...*v1.Pod) (names []string) {
		devices, err := f.cache.Estimate(node, pods, &v1.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range devices.Resources() {
			if resource.Used > 0 {
				names = append(names, string(resource.Name))
			}
		}
		return names
	}
	if got := used(long, short); len(got) != 1 {
		t.Errorf("%d devices are used, want one: both annotations together are too long", len(got))
	}
	if got := used(long, short); len(got) != 2 {
		t.Errorf("%d devices are used the second time, want both", len(got))
	}
	first, _ := f.cache.Estimate(node, []*v1.Pod{long, short}, &v1.Pod{})
	if second, _ := f.cache.Estimate(node, []*v1.Pod{long, short}, &v1.Pod{}); second != first {
		t.Error("nothing has changed, and the estimate was made again")
	}
	if got := used(short); len(got) != 1 {
		t.Errorf("%d devices are used after a pod went, want one", len(got))
	}
}

// An estimate calls no plugin, not even for an inventory that it does not know.
func TestAnUnknownInventoryHasNoEstimate(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "u", "A")
	newer := node.DeepCopy()
	newer.ResourceVersion += "0"
	if devices, err := f.cache.Estimate(newer, nil, &v1.Pod{}); devices != nil || err != nil {
		t.Errorf("got %v and %v, want neither", devices, err)
	}
}
