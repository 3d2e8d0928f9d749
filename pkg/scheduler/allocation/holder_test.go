// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// wear is the resource that plugins of these tests take for each card that a pod holds, as much as
// a node has of it.
const wear = types.ResourceName("resource/group/gpu/GPU-0/wear")

// wearing returns gpus that take wear, and notes for which pods they are asked.
func wearing(asked *[]string) *fake {
	f := gpus()
	f.take = func(node *types.NodeInfo, pod *types.PodInfo) error {
		*asked = append(*asked, pod.Name)
		if pod.Name == "broken" {
			return errors.New("it does not wear")
		}
		node.Used[wear] += node.Allocatable[wear] * int64(len(pod.RunningContainers["main"].AllocateFrom))
		return nil
	}
	return f
}

// holding returns a pod that holds this many cards.
func holding(name string, cards int) *Holder {
	from := types.ResourceLocation{}
	for i := range cards {
		at := types.ResourceName(fmt.Sprintf("resource/group/gpu/GPU-%d/cards", i))
		from[at] = at
	}
	return NewHolder(name, &types.PodInfo{
		Name: name, RunningContainers: map[string]types.ContainerInfo{"main": {AllocateFrom: from}},
	}, nil)
}

// worn returns the inventory of a node that has this much wear and as much again in use.
func worn(t *testing.T, s *Set, quantity int64) *Inventory {
	t.Helper()
	info := listing("n", "nvidia.com/gpu")
	resource.AddGroupResource(info.Allocatable, "gpu/GPU-0/wear", quantity)
	info.Used = types.ResourceList{wear: quantity}
	inventory, err := s.AddNode(t.Context(), info)
	if err != nil {
		t.Fatal(err)
	}
	return inventory
}

func TestATranslatorIsCalledOnceForWhatAPodTakes(t *testing.T) {
	var asked []string
	s := set(t, clock.RealClock{}, &translator{fake: wearing(&asked)})
	one, two, three := holding("one", 1), holding("two", 2), holding("three", 3)
	small, large := worn(t, s, 10), worn(t, s, 100)
	for _, step := range []struct {
		what      string
		inventory *Inventory
		holders   []*Holder
		asked     string
		used      int64
	}{
		{"no pod holds anything", small, nil, "", 10},
		{"two pods come", small, []*Holder{one, two}, "one two", 40},
		{"a third comes", small, []*Holder{one, three, two}, "three", 70},
		{"one goes", small, []*Holder{three, two}, "", 60},
		{"the node has more", large, []*Holder{one, two}, "one two", 400},
		{"as before", large, []*Holder{one, two}, "", 400},
		{"the node has less again", small, []*Holder{one}, "one", 20},
		{"as long before", small, []*Holder{one, two}, "two", 40},
	} {
		asked = nil
		node, err := s.Node(t.Context(), step.inventory, step.holders)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(asked, " "); got != step.asked {
			t.Errorf("%s: asked about %q, want %q", step.what, got, step.asked)
		}
		if diff := cmp.Diff(types.ResourceList{wear: step.used}, node.info.Used); diff != "" {
			t.Errorf("%s: used (-want +got):\n%s", step.what, diff)
		}
	}
}

func TestTwoTranslatorsTakeTheirPartsEach(t *testing.T) {
	var first, second []string
	s := set(t, clock.RealClock{}, &translator{fake: wearing(&first)}, &translator{fake: wearing(&second)})
	inventory, holders := worn(t, s, 10), []*Holder{holding("one", 1), holding("two", 2)}
	for range 2 {
		node, err := s.Node(t.Context(), inventory, holders)
		if err != nil {
			t.Fatal(err)
		}
		if used := node.info.Used[wear]; used != 70 {
			t.Errorf("%d used, want 10 and twice 30", used)
		}
	}
	if len(first) != 2 || len(second) != 2 {
		t.Errorf("asked about %v and %v, want each pod once", first, second)
	}
}

func TestAnImpurePluginIsCalledForAllHoldersEachTime(t *testing.T) {
	var asked []string
	s := set(t, clock.RealClock{}, wearing(&asked))
	inventory, holders := worn(t, s, 10), []*Holder{holding("one", 1), holding("two", 2)}
	for range 2 {
		if _, err := s.Node(t.Context(), inventory, holders); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(asked, " "); got != "one two one two" {
		t.Errorf("asked about %q, want each pod twice", got)
	}
}

func TestErrorsOfATranslatorAreNotCached(t *testing.T) {
	var asked []string
	s := set(t, clock.RealClock{}, &translator{fake: wearing(&asked)})
	inventory, holders := worn(t, s, 10), []*Holder{holding("broken", 1)}
	for range 2 {
		_, err := s.Node(t.Context(), inventory, holders)
		if err == nil || !strings.Contains(err.Error(), "it does not wear") {
			t.Errorf("error %v, want the plugin's", err)
		}
	}
	if len(asked) != 2 {
		t.Errorf("asked %d times, want twice", len(asked))
	}
}

// A node numbers the groups of its devices again, as after a start without one of them.
func TestADeviceThatIsInAnotherGroupNowIsHeldAsBefore(t *testing.T) {
	var seen []types.ResourceName
	plugin := gpus()
	plugin.take = func(_ *types.NodeInfo, pod *types.PodInfo) error {
		for _, from := range pod.RunningContainers["main"].AllocateFrom {
			seen = append(seen, from)
		}
		return nil
	}
	s := set(t, clock.RealClock{}, plugin)
	name := func(group, id string) types.ResourceName {
		return types.ResourceName("resource/group/gpugrp0/" + group + "/gpu/" + id + "/cards")
	}
	info := listing("n", "nvidia.com/gpu")
	for _, device := range []types.ResourceName{name("0", "a"), name("1", "b"), name("0", "twin"), name("1", "twin")} {
		info.Allocatable[device], info.Capacity[device] = 1, 1
	}
	info.Capacity[name("1", "ill")] = 1 // and may not be allocated
	inventory, err := s.AddNode(t.Context(), info)
	if err != nil {
		t.Fatal(err)
	}
	for before, now := range map[types.ResourceName]types.ResourceName{
		name("0", "a"):    name("0", "a"),
		name("7", "a"):    name("0", "a"),
		name("0", "b"):    name("1", "b"),
		name("0", "ill"):  name("1", "ill"),
		name("1", "twin"): name("1", "twin"),
		name("7", "twin"): name("7", "twin"), // it may be either of the two
		name("0", "gone"): name("0", "gone"),
	} {
		holder := NewHolder("u", &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"main": {
			DevRequests: types.ResourceList{"r": 1}, AllocateFrom: types.ResourceLocation{"r": before},
		}}}, nil)
		seen = nil
		for range 2 {
			node, err := s.Node(t.Context(), inventory, []*Holder{holder})
			if err != nil {
				t.Fatal(err)
			}
			for what, used := range map[string]types.ResourceList{
				"used": node.info.Used, "estimated": s.Estimate(inventory, []*Holder{holder}).info.Used,
			} {
				if diff := cmp.Diff(types.ResourceList{now: 1}, used); diff != "" {
					t.Errorf("%s is held: %s (-want +got):\n%s", before, what, diff)
				}
			}
		}
		if len(seen) == 0 || seen[0] != now {
			t.Errorf("%s is held, and the plugin takes %v, want %s", before, seen, now)
		}
		if holder.Pod.RunningContainers["main"].AllocateFrom["r"] != before {
			t.Errorf("the pod's allocation is changed")
		}
	}
}
