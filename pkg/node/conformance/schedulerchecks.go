// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Names of checks that others need.
const (
	nodesCheck  = "nodes"
	fitsCheck   = "fits"
	placesCheck = "places"
)

// schedulerChecks are the checks of a scheduler plugin.
func schedulerChecks() []check[*schedulerPlugin] {
	return []check[*schedulerPlugin]{
		{
			name:  "name",
			about: "GetName returns one line of text, the same each time.",
			fix:   "return a constant such as \"widget\"",
			run:   func(h *schedulerPlugin) error { return checkName(h.plugin.GetName) },
		},
		{
			name:  "abilities",
			about: "Methods that are called like those of the SDK's optional interfaces have their types.",
			fix:   "give the method the type that the SDK says: the hosts do not see it",
			run: func(h *schedulerPlugin) error {
				return checkAbilities(h.plugin, reflect.TypeFor[devicescheduler.ConcurrentSafe](),
					reflect.TypeFor[devicescheduler.Pure](), reflect.TypeFor[devicescheduler.Translator](),
					reflect.TypeFor[devicescheduler.Patient](), reflect.TypeFor[devicescheduler.Preferring](),
					reflect.TypeFor[devicescheduler.ResourceClaimer](),
					reflect.TypeFor[devicescheduler.DeviceCounter](), reflect.TypeFor[devicescheduler.PodObserver](),
					reflect.TypeFor[devicescheduler.Translating](),
					reflect.TypeFor[devicescheduler.Specialist](), reflect.TypeFor[devicescheduler.Describer]())
			},
		},
		{
			name:  "declarations",
			about: "What the plugin declares of itself makes sense: names of resources, levels, words.",
			fix:   "correct the name that it says",
			run:   (*schedulerPlugin).checkDeclarations,
		},
		{
			name:  nodesCheck,
			about: "AddNode leaves names that parse in Allocatable, the same each time, and changes nothing else.",
			fix:   "write Allocatable of nodeInfo alone, and keep a copy of what you need",
			run:   (*schedulerPlugin).checkNodes,
		},
		{
			name:  fitsCheck,
			about: "A pod that requests what the node counts fits an empty node, and devices are requested for it.",
			fix:   "translate KubeRequests of each container into DevRequests",
			needs: []string{nodesCheck},
			run:   (*schedulerPlugin).checkFits,
		},
		{
			name:  placesCheck,
			about: "A pod that fits can be allocated: each request is served by a resource that the node has.",
			fix:   "have PodAllocate request, or place, what PodFitsDevice has agreed to",
			needs: []string{fitsCheck},
			run:   (*schedulerPlugin).checkPlaces,
		},
		{
			name:     "score",
			about:    "Scores are numbers from 0 to 1.",
			fix:      "mind divisions by zero, and divide by the largest score",
			provokes: true,
			needs:    []string{placesCheck},
			run:      (*schedulerPlugin).checkScore,
		},
		{
			name: "writes",
			about: "PodFitsDevice and PodAllocate write DevRequests, AllocateFrom and Scorer, and add to what is " +
				"there.",
			fix:   "add entries to the containers' maps, never replace the maps, and write nothing else",
			needs: []string{placesCheck},
			run:   (*schedulerPlugin).checkWrites,
		},
		{
			name:  "same",
			about: "The same pod on the same node has the same answer.",
			fix:   "sort what comes out of a map, and number nothing by calls",
			needs: []string{placesCheck},
			run:   (*schedulerPlugin).checkSame,
		},
		{
			name:  "capacity",
			about: "No pod fits that requests more than the node has, and no device is allocated twice.",
			fix:   "compare requests with Allocatable less Used, and have TakePodResources add what pods hold",
			needs: []string{"same"},
			run:   (*schedulerPlugin).checkCapacity,
		},
		{
			name:  "reasons",
			about: "Where a pod does not fit, there is a reason, the same text on each node.",
			fix:   "return a reason without the node's name",
			needs: []string{fitsCheck},
			run:   (*schedulerPlugin).checkReasons,
		},
		{
			name:  "others",
			about: "Pods without devices, or with those of other plugins, fit and are left alone.",
			fix:   "answer yes for what is not yours, without writing anything",
			needs: []string{nodesCheck},
			run:   (*schedulerPlugin).checkOthers,
		},
		{
			name:  "take-same",
			about: "TakePodResources has the same effect each time, writes Used alone, and in any order of pods.",
			fix:   "make it depend on its arguments alone, and add to Used",
			needs: []string{"same"},
			run:   (*schedulerPlugin).checkTake,
		},
		{
			name:  "take-return",
			about: "ReturnPodResources after TakePodResources leaves the node as it was.",
			fix:   "subtract in one what the other adds",
			needs: []string{"take-same"},
			run:   (*schedulerPlugin).checkReturn,
		},
		{
			name:     "gone-devices",
			about:    "A pod that holds a device which the node no longer has is no error.",
			fix:      "take nothing for names that the node does not have",
			provokes: true,
			needs:    []string{"take-same"},
			run:      (*schedulerPlugin).checkGone,
		},
		{
			name:  "pure",
			about: "A plugin that says that it is Pure answers the same under all names of pod, node and other nodes.",
			fix:   "do not implement Pure, or use the arguments' quantities alone",
			needs: []string{"same"},
			run:   (*schedulerPlugin).checkPure,
		},
		{
			name:  "translator",
			about: "A Translator's requests do not depend on what is used, and change only when Revision grows.",
			fix:   "do not implement Translator, or let Revision grow when AddNode or RemoveNode changes answers",
			needs: []string{"take-same"},
			run:   (*schedulerPlugin).checkTranslator,
		},
		{
			name:  "after-wait",
			about: "What AfterWait returns keeps the same rules for pods that have waited.",
			fix:   "translate there as the plugin itself does, for the node's own devices",
			needs: []string{"score", "writes", "same"},
			run:   (*schedulerPlugin).checkAfterWait,
		},
		{
			name:  "preferring",
			about: "What Preferring returns keeps the same rules, and is a Refiner.",
			fix:   "translate there as the plugin itself does, for any devices of the node, and implement Refine",
			needs: []string{"score", "writes", "same"},
			run:   (*schedulerPlugin).checkPreferring,
		},
		{
			name:     "observer",
			about:    "PodHolds and PodGone take any pod, also one that they do not know.",
			fix:      "look pods up by their UID, and ignore unknown ones",
			provokes: true,
			needs:    []string{placesCheck},
			run:      (*schedulerPlugin).checkObserver,
		},
		{
			name:     "hostile",
			about:    "Odd names, giant and negative quantities and large pods are answered in time.",
			fix:      "check names with resource.ParseRequest, and quantities before loops and sums",
			provokes: true,
			needs:    []string{"take-same", "others"},
			run:      (*schedulerPlugin).checkHostile,
		},
		{
			name:     "concurrent",
			about:    "A plugin that says that it is safe for concurrent use is.",
			fix:      "guard what the methods share, or do not implement ConcurrentSafe",
			provokes: true,
			needs:    []string{"same"},
			run:      (*schedulerPlugin).checkConcurrent,
		},
		{
			name:    "restart",
			about:   "Another process makes the same of the same pods and nodes.",
			fix:     "derive names from what the node reports",
			needs:   []string{"same"},
			observe: (*schedulerPlugin).observe,
		},
	}
}

func (h *schedulerPlugin) checkDeclarations() error {
	extended := func(where string, names ...types.ResourceName) error {
		for _, name := range names {
			if !resource.IsExtendedResource(name) {
				return fmt.Errorf("%s has %q, which is no name for an extended resource, like "+
					"vendor.example/device", where, name)
			}
		}
		return nil
	}
	if claimer, ok := h.plugin.(devicescheduler.ResourceClaimer); ok {
		if err := extended("ClaimedResources", claimer.ClaimedResources()...); err != nil {
			return err
		}
	}
	if counter, ok := h.plugin.(devicescheduler.DeviceCounter); ok {
		for _, counted := range counter.CountedDevices() {
			if err := extended("CountedDevices", counted.Plain); err != nil {
				return err
			}
			if err := checkSegments("CountedDevices", counted.Level, counted.Resource); err != nil {
				return err
			}
		}
	}
	if specialist, ok := h.plugin.(devicescheduler.Specialist); ok {
		kinds := specialist.Kinds()
		if len(kinds.Plain)+len(kinds.Levels) == 0 {
			return errors.New("Kinds is empty: the plugin would never be called")
		}
		if err := errors.Join(extended("Kinds", kinds.Plain...), checkSegments("Kinds", kinds.Levels...)); err != nil {
			return err
		}
	}
	if patient, ok := h.plugin.(devicescheduler.Patient); ok && patient.AfterWait() == nil {
		return errors.New("AfterWait returns nil")
	}
	if preferring, ok := h.plugin.(devicescheduler.Preferring); ok && preferring.Preferring() == nil {
		return errors.New("Preferring returns nil")
	}
	if describer, ok := h.plugin.(devicescheduler.Describer); ok {
		words := describer.Words()
		for _, level := range slices.Sorted(maps.Keys(words.Levels)) {
			if noun := words.Levels[level]; noun.One == "" || noun.Many == "" {
				return fmt.Errorf("Words has no word for one, or for many, of level %q", level)
			}
		}
	}
	return nil
}

// checkSegments checks names of levels and resources.
func checkSegments(where string, names ...string) error {
	for _, name := range names {
		if name == "" || strings.Contains(name, "/") {
			return fmt.Errorf("%s has %q, which is no segment of a path", where, name)
		}
	}
	return nil
}

func (h *schedulerPlugin) checkNodes() error {
	if before := h.plugin.UsingGroupScheduler(); before != h.plugin.UsingGroupScheduler() {
		return errors.New("UsingGroupScheduler answers both yes and no")
	}
	return h.withNode(func(first *types.NodeInfo) error {
		if err := checkQuantities("Allocatable", first.Allocatable); err != nil {
			return err
		}
		if _, err := grouptree.CompileDeviceTree(first.Allocatable, first.Scorer); err != nil {
			return err
		}
		allocated := h.node.Clone()
		err := h.call("AddNode", func() error { h.plugin.AddNode(allocated.Name, allocated); return nil })
		if err != nil {
			return err
		}
		if err := sameList(first.Allocatable, allocated.Allocatable); err != nil {
			return fmt.Errorf("the node is reported again: Allocatable: %w", err)
		}
		allocated.Allocatable = maps.Clone(h.node.Allocatable)
		if err := sameInventory(h.node, allocated); err != nil {
			return fmt.Errorf("AddNode changes %w", err)
		}
		for _, list := range []types.ResourceList{allocated.Capacity, allocated.Allocatable, allocated.Used} {
			clear(list) // the host may do what it likes with it
		}
		again, err := h.add(h.node)
		if err != nil {
			return err
		}
		if err := sameList(first.Allocatable, again.Allocatable); err != nil {
			return fmt.Errorf("after the host changed the NodeInfo of the call before, Allocatable: %w", err)
		}
		return h.call("RemoveNode", func() error { h.plugin.RemoveNode("a-node-that-never-was"); return nil })
	})
}
