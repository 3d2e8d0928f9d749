// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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

func TestALookShowsBoundPodsAndACloserOneReservationsToo(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "u", "A", "B", "C")
	bound := f.bound(f.pod("bound", 1), "n", allocated("bound", "n", "A"))
	reserved := f.pod("reserved", 1)
	f.mustReserve(nodeInfo(node, bound), reserved)
	pods := []*v1.Pod{bound}

	look := func() string {
		sight, err := f.cache.View(t.Context(), node, pods)
		return held(t, sight, err)
	}
	closer := func() string {
		sight, err := f.cache.ViewReserved(t.Context(), node, pods)
		return held(t, sight, err)
	}
	f.want("a look", look(), "A:bound")
	f.want("a closer look", closer(), "A:bound C:reserved?")

	pods = append(pods, f.bound(reserved, "n", allocated("reserved", "n", "C")))
	f.want("a look after the binding", look(), "A:bound C:reserved")
	f.want("a closer look after the binding", closer(), "A:bound C:reserved")
	if f.cache.Reserved("n", reserved.UID) == "" {
		t.Error("looking has dropped the reservation, which the scheduler's snapshot may still need")
	}

	pods = pods[1:]
	f.want("a look after a pod went", look(), "C:reserved")
	f.deleteNode(node)
	if _, err := f.cache.View(t.Context(), node, pods); err == nil {
		t.Error("a look at a node that is gone succeeds")
	}
}

func TestTheSameSightIsSeenOnce(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "u", "A")
	pods := []*v1.Pod{f.bound(f.pod("p", 1), "n", allocated("p", "n", "A"))}
	look := func() *View {
		sight, err := f.cache.View(t.Context(), node, pods)
		if err != nil {
			t.Fatal(err)
		}
		return sight
	}
	first := look()
	if look() != first {
		t.Error("nothing has changed, and the node was looked at again")
	}
	pods = []*v1.Pod{f.bound(f.pod("p", 1), "n", allocated("p", "n", "A"))}
	if look() == first {
		t.Error("a pod has changed, and the node was not looked at again")
	}
	second := look()
	node = f.node("n", "u", "A", "B")
	if look() == second {
		t.Error("the inventory has changed, and the node was not looked at again")
	}
}
