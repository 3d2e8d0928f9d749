// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
)

const driver = "gpu.example.com"

var features = structured.Features{PartitionableDevices: true}

func node(name string) *v1.Node { return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

// slice returns a slice of a pool that has the name of its node.
func slice(node, name string, of int64, devices ...string) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: of},
		},
	}
	for _, name := range devices {
		s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{Name: name})
	}
	return s
}

// reached returns what a node reaches, in words.
func reached(t *testing.T, index *Index, n *v1.Node) string {
	t.Helper()
	found, err := index.Node(n)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, p := range found.Pools {
		var names []string
		for _, device := range p.Devices {
			names = append(names, device.Spec.Name)
		}
		text += fmt.Sprintf("%s:%d%s%v ", p.ID.Pool, p.State, p.NotModelled, names)
	}
	return text
}

func TestPoolsAreReadAsUpstreamReadsThem(t *testing.T) {
	generation := func(s *resourceapi.ResourceSlice, n int64) *resourceapi.ResourceSlice {
		s.Spec.Pool.Generation = n
		return s
	}
	everywhere := func(s *resourceapi.ResourceSlice) *resourceapi.ResourceSlice {
		s.Spec.NodeName, s.Spec.AllNodes = nil, ptr.To(true)
		return s
	}
	perDevice := everywhere(slice("shared", "s", 1, "here", "there"))
	perDevice.Spec.AllNodes, perDevice.Spec.PerDeviceNodeSelection = nil, ptr.To(true)
	perDevice.Spec.Devices[0].NodeName, perDevice.Spec.Devices[1].NodeName = ptr.To("n1"), ptr.To("n2")
	counted := slice("n1", "s", 1, "a")
	counted.Spec.Devices[0].ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: "set"}}
	elsewhere := generation(slice("n2", "2", 2, "b"), 1)
	elsewhere.Spec.Pool.Name = "n1"
	for name, test := range map[string]struct {
		slices []*resourceapi.ResourceSlice
		want   string
	}{
		"the slices of a node, by their names": {
			[]*resourceapi.ResourceSlice{slice("n1", "2", 2, "b"), slice("n1", "1", 2, "a"), slice("n2", "3", 1, "c")},
			"n1:0[a b] ",
		},
		"an incomplete pool": {[]*resourceapi.ResourceSlice{slice("n1", "1", 2, "a")}, "n1:1[] "},
		"a device twice":     {[]*resourceapi.ResourceSlice{slice("n1", "1", 1, "a", "a")}, "n1:2[] "},
		"the newest generation": {
			[]*resourceapi.ResourceSlice{generation(slice("n1", "1", 1, "a"), 2), slice("n1", "2", 1, "b")}, "n1:0[a] ",
		},
		"a newer generation of which this node has nothing yet": {
			[]*resourceapi.ResourceSlice{slice("n1", "1", 2, "a"), elsewhere}, "",
		},
		"a pool of all nodes": {
			[]*resourceapi.ResourceSlice{everywhere(slice("all", "s", 1, "a"))}, "all:0[a] ",
		},
		"devices that say where they are": {[]*resourceapi.ResourceSlice{perDevice}, "shared:0[here] "},
		"shared counters":                 {[]*resourceapi.ResourceSlice{counted}, "n1:0shared counters[a] "},
		"no slices":                       {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := reached(t, NewInventory(features).Update(test.slices), node("n1")); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestAChangeOfOneNodeKeepsWhatIsKnownOfOthers(t *testing.T) {
	inventory := NewInventory(features)
	first, second := slice("n1", "1", 1, "a"), slice("n2", "2", 1, "b")
	index := inventory.Update([]*resourceapi.ResourceSlice{first, second})
	before := []*Node{mustReach(t, index, "n1"), mustReach(t, index, "n2")}
	if again := inventory.Update([]*resourceapi.ResourceSlice{second, first}); again != index {
		t.Error("the same slices in another order make another index")
	}
	changed := slice("n1", "1", 1, "a", "c")
	index = inventory.Update([]*resourceapi.ResourceSlice{changed, second})
	if mustReach(t, index, "n2") != before[1] {
		t.Error("a node that has not changed was computed again")
	}
	if got := len(mustReach(t, index, "n1").Devices); got != 2 {
		t.Errorf("the node that has changed has %d devices", got)
	}
	index = inventory.Update([]*resourceapi.ResourceSlice{second})
	if got := len(mustReach(t, index, "n1").Devices); got != 0 {
		t.Errorf("the node whose slice is gone has %d devices", got)
	}
}

func mustReach(t *testing.T, index *Index, name string) *Node {
	t.Helper()
	found, err := index.Node(node(name))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestTheMemoForgets(t *testing.T) {
	var m Memo
	for i := range 3 * memoEntries {
		m.Put(i, i)
		if got := m.Get(i); got != i {
			t.Fatalf("%d is kept as %v", i, got)
		}
	}
	if len(m.values) > memoEntries {
		t.Errorf("it keeps %d values", len(m.values))
	}
	if slices.Contains([]any{m.Get("none")}, any(0)) || m.Get("none") != nil {
		t.Error("it has what was not put into it")
	}
}
