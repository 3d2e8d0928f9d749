// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"maps"
	"math"
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
func schedulerChecks() []check[*schedulerHalf] {
	return []check[*schedulerHalf]{
		{
			name:  "name",
			about: "GetName returns one line of text, the same each time.",
			fix:   "return a constant such as \"widget\"",
			run:   func(h *schedulerHalf) error { return checkName(h.plugin.GetName) },
		},
		{
			name:  "abilities",
			about: "Methods that are called like those of the SDK's optional interfaces have their types.",
			fix:   "give the method the type that the SDK says: the hosts do not see it",
			run: func(h *schedulerHalf) error {
				return checkAbilities(h.plugin, reflect.TypeFor[devicescheduler.ConcurrentSafe](),
					reflect.TypeFor[devicescheduler.Pure](), reflect.TypeFor[devicescheduler.Translator](),
					reflect.TypeFor[devicescheduler.Patient](), reflect.TypeFor[devicescheduler.ResourceClaimer](),
					reflect.TypeFor[devicescheduler.DeviceCounter](), reflect.TypeFor[devicescheduler.PodObserver](),
					reflect.TypeFor[devicescheduler.Specialist](), reflect.TypeFor[devicescheduler.Describer]())
			},
		},
		{
			name:  "declarations",
			about: "What the plugin declares of itself makes sense: names of resources, levels, words.",
			fix:   "correct the name that it says",
			run:   (*schedulerHalf).checkDeclarations,
		},
		{
			name:  nodesCheck,
			about: "AddNode leaves names that parse in Allocatable, the same each time, and changes nothing else.",
			fix:   "write Allocatable of nodeInfo alone, and keep a copy of what you need",
			run:   (*schedulerHalf).checkNodes,
		},
		{
			name:  fitsCheck,
			about: "A pod that requests what the node counts fits an empty node, and devices are requested for it.",
			fix:   "translate KubeRequests of each container into DevRequests",
			needs: []string{nodesCheck},
			run:   (*schedulerHalf).checkFits,
		},
		{
			name:  placesCheck,
			about: "A pod that fits can be allocated: each request is served by a resource that the node has.",
			fix:   "have PodAllocate request, or place, what PodFitsDevice has agreed to",
			needs: []string{fitsCheck},
			run:   (*schedulerHalf).checkPlaces,
		},
		{
			name:  "score",
			about: "Scores are numbers from 0 to 1.",
			fix:   "mind divisions by zero, and divide by the largest score",
			needs: []string{placesCheck},
			run:   (*schedulerHalf).checkScore,
		},
		{
			name: "writes",
			about: "PodFitsDevice and PodAllocate write DevRequests, AllocateFrom and Scorer, and add to what is " +
				"there.",
			fix:   "add entries to the containers' maps, never replace the maps, and write nothing else",
			needs: []string{placesCheck},
			run:   (*schedulerHalf).checkWrites,
		},
		{
			name:  "same",
			about: "The same pod on the same node has the same answer.",
			fix:   "sort what comes out of a map, and number nothing by calls",
			needs: []string{placesCheck},
			run:   (*schedulerHalf).checkSame,
		},
		{
			name:  "capacity",
			about: "No pod fits that requests more than the node has, and no device is allocated twice.",
			fix:   "compare requests with Allocatable less Used, and have TakePodResources add what pods hold",
			needs: []string{"same"},
			run:   (*schedulerHalf).checkCapacity,
		},
		{
			name:  "reasons",
			about: "Where a pod does not fit, there is a reason, the same text on each node.",
			fix:   "return a reason without the node's name",
			needs: []string{fitsCheck},
			run:   (*schedulerHalf).checkReasons,
		},
		{
			name:  "others",
			about: "Pods without devices, or with those of other plugins, fit and are left alone.",
			fix:   "answer yes for what is not yours, without writing anything",
			needs: []string{nodesCheck},
			run:   (*schedulerHalf).checkOthers,
		},
		{
			name:  "take-same",
			about: "TakePodResources has the same effect each time, writes Used alone, and in any order of pods.",
			fix:   "make it depend on its arguments alone, and add to Used",
			needs: []string{"same"},
			run:   (*schedulerHalf).checkTake,
		},
		{
			name:  "take-return",
			about: "ReturnPodResources after TakePodResources leaves the node as it was.",
			fix:   "subtract in one what the other adds",
			needs: []string{"take-same"},
			run:   (*schedulerHalf).checkReturn,
		},
		{
			name:  "gone-devices",
			about: "A pod that holds a device which the node no longer has is no error.",
			fix:   "take nothing for names that the node does not have",
			needs: []string{"take-same"},
			run:   (*schedulerHalf).checkGone,
		},
		{
			name:  "pure",
			about: "A plugin that says that it is Pure answers the same whatever pod, node and other nodes are called.",
			fix:   "do not implement Pure, or use the arguments' quantities alone",
			needs: []string{"same"},
			run:   (*schedulerHalf).checkPure,
		},
		{
			name:  "translator",
			about: "A Translator's requests do not depend on what is used, and change only when Revision grows.",
			fix:   "do not implement Translator, or let Revision grow when AddNode or RemoveNode changes answers",
			needs: []string{"take-same"},
			run:   (*schedulerHalf).checkTranslator,
		},
		{
			name:  "after-wait",
			about: "What AfterWait returns keeps the same rules for pods that have waited.",
			fix:   "translate there as the plugin itself does, for the node's own devices",
			needs: []string{"score", "writes", "same"},
			run:   (*schedulerHalf).checkAfterWait,
		},
		{
			name:  "observer",
			about: "PodHolds and PodGone take any pod, also one that they do not know.",
			fix:   "look pods up by their UID, and ignore unknown ones",
			needs: []string{placesCheck},
			run:   (*schedulerHalf).checkObserver,
		},
		{
			name:  "hostile",
			about: "Odd names, giant and negative quantities and large pods are answered in time.",
			fix:   "check names with resource.ParseRequest, and quantities before loops and sums",
			needs: []string{"take-same", "others"},
			run:   (*schedulerHalf).checkHostile,
		},
		{
			name:  "concurrent",
			about: "A plugin that says that it is safe for concurrent use is.",
			fix:   "guard what the methods share, or do not implement ConcurrentSafe",
			needs: []string{"same"},
			run:   (*schedulerHalf).checkConcurrent,
		},
		{
			name:    "restart",
			about:   "Another process makes the same of the same pods and nodes.",
			fix:     "derive names from what the node reports",
			needs:   []string{"same"},
			observe: (*schedulerHalf).observe,
		},
	}
}

func (h *schedulerHalf) checkDeclarations() error {
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

func (h *schedulerHalf) checkNodes() error {
	if before := h.plugin.UsingGroupScheduler(); before != h.plugin.UsingGroupScheduler() {
		return errors.New("UsingGroupScheduler answers both yes and no")
	}
	return h.added(func(first *types.NodeInfo) error {
		if err := checkQuantities("Allocatable", first.Allocatable); err != nil {
			return err
		}
		if _, err := grouptree.CompileDeviceTree(first.Allocatable, first.Scorer); err != nil {
			return err
		}
		given := h.node.Clone()
		if err := h.call("AddNode", func() error { h.plugin.AddNode(given.Name, given); return nil }); err != nil {
			return err
		}
		if err := sameList(first.Allocatable, given.Allocatable); err != nil {
			return fmt.Errorf("the node is reported again: Allocatable: %w", err)
		}
		given.Allocatable = maps.Clone(h.node.Allocatable)
		if err := sameInventory(h.node, given); err != nil {
			return fmt.Errorf("AddNode changes %w", err)
		}
		for _, list := range []types.ResourceList{given.Capacity, given.Allocatable, given.Used} {
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

func (h *schedulerHalf) checkFits() error {
	return h.added(func(node *types.NodeInfo) error {
		some := false
		for _, s := range h.samples(node) {
			a, err := h.fits(node, s.pod)
			if err != nil {
				return fmt.Errorf("for a pod that requests %s, %w", s.what, err)
			}
			counted := s.plain != ""
			if counted && !a.fits {
				return fmt.Errorf("a pod that requests %s does not fit a node that has %d: %s", s.what,
					h.node.KubeAlloc[s.plain], sayReasons(a.reasons))
			}
			if counted && !requests(a.pod) {
				return fmt.Errorf("a pod that requests %s fits, and no device is requested for it", s.what)
			}
			some = some || a.fits && requests(a.pod)
		}
		if !some {
			return fmt.Errorf("no pod that requests devices is served, of %d that request what the node has",
				len(h.samples(node)))
		}
		return nil
	})
}

// eachServed runs do for each sample that the plugin serves on the node, with its allocation.
func (h *schedulerHalf) eachServed(do func(node *types.NodeInfo, s sample, allocated *types.PodInfo) error) error {
	return h.added(func(node *types.NodeInfo) error {
		list, allocated, err := h.served(node)
		if err != nil {
			return err
		}
		for i, s := range list {
			if err := do(node, s, allocated[i]); err != nil {
				return fmt.Errorf("for a pod that requests %s, %w", s.what, err)
			}
		}
		return nil
	})
}

func (h *schedulerHalf) checkScore() error {
	return h.eachServed(func(node *types.NodeInfo, s sample, allocated *types.PodInfo) error {
		used, err := h.with(node, allocated)
		if err != nil {
			return err
		}
		full := node.Clone()
		full.Used = maps.Clone(node.Allocatable)
		for _, state := range []*types.NodeInfo{node, used, full} {
			a, err := h.fits(state, s.pod)
			if err != nil {
				return err
			}
			if math.IsNaN(a.score) || a.score < 0 || a.score > 1 {
				return fmt.Errorf("the score is %v", a.score)
			}
		}
		return nil
	})
}

func (h *schedulerHalf) checkWrites() error {
	return h.eachServed(func(node *types.NodeInfo, s sample, _ *types.PodInfo) error {
		pod := s.pod.Clone()
		const theirs types.ResourceName = "resource/group/another-vendors-device/0/units"
		for name, container := range pod.RunningContainers {
			container.DevRequests[theirs], container.AllocateFrom[theirs] = 1, theirs
			pod.RunningContainers[name] = container
		}
		for method, write := range map[string]func(*types.NodeInfo, *types.PodInfo) error{
			"PodFitsDevice": func(node *types.NodeInfo, pod *types.PodInfo) error {
				h.asked.PodFitsDevice(node, pod, false)
				return nil
			},
			"PodAllocate": h.asked.PodAllocate,
		} {
			given, left := node.Clone(), pod.Clone()
			if err := h.call(method, func() error { return write(given, left) }); err != nil {
				return err
			}
			if err := sameInventory(node, given); err != nil {
				return fmt.Errorf("%s changes the node: %w", method, err)
			}
			for name, container := range left.RunningContainers {
				if container.DevRequests[theirs] != 1 || container.AllocateFrom[theirs] != theirs {
					return fmt.Errorf("%s removes what another plugin wrote into container %q", method, name)
				}
			}
			if err := sameInputs(pod, left); err != nil {
				return fmt.Errorf("%s changes %w", method, err)
			}
		}
		return nil
	})
}

// sameInputs returns how what a plugin is to read of a pod has changed, or nil.
func sameInputs(a, b *types.PodInfo) error {
	if a.Name != b.Name || a.NodeName != b.NodeName {
		return fmt.Errorf("the name of the pod, or of its node")
	}
	if err := sameList(a.Requests, b.Requests); err != nil {
		return fmt.Errorf("the pod's Requests: %w", err)
	}
	for i, containers := range []map[string]types.ContainerInfo{a.InitContainers, a.RunningContainers} {
		others := []map[string]types.ContainerInfo{b.InitContainers, b.RunningContainers}[i]
		if len(containers) != len(others) {
			return fmt.Errorf("the number of containers, from %d to %d", len(containers), len(others))
		}
		for name, container := range containers {
			if err := sameList(container.Requests, others[name].Requests); err != nil {
				return fmt.Errorf("Requests of container %q: %w", name, err)
			}
			if err := sameList(container.KubeRequests, others[name].KubeRequests); err != nil {
				return fmt.Errorf("KubeRequests of container %q: %w", name, err)
			}
		}
	}
	return nil
}

func (h *schedulerHalf) checkSame() error {
	return h.eachServed(func(node *types.NodeInfo, s sample, _ *types.PodInfo) error {
		for range 8 {
			if err := h.sameAnswers(node, s.pod, node, s.pod); err != nil {
				return err
			}
		}
		return nil
	})
}

// sameAnswers returns how the answers for two pods on two nodes differ, or nil.
func (h *schedulerHalf) sameAnswers(
	node *types.NodeInfo, pod *types.PodInfo, otherNode *types.NodeInfo, otherPod *types.PodInfo,
) error {
	a, err := h.fits(node, pod)
	if err != nil {
		return err
	}
	b, err := h.fits(otherNode, otherPod)
	if err != nil {
		return err
	}
	if a.fits != b.fits {
		return fmt.Errorf("PodFitsDevice says %v, then %v: %s", a.fits, b.fits, sayReasons(append(a.reasons,
			b.reasons...)))
	}
	if a.score != b.score && !(math.IsNaN(a.score) && math.IsNaN(b.score)) {
		return fmt.Errorf("PodFitsDevice has the score %v, then %v", a.score, b.score)
	}
	if err := sameRequests(a.pod, b.pod); err != nil {
		return fmt.Errorf("PodFitsDevice: %w", err)
	}
	first, err := h.allocate(node, pod)
	second, errThen := h.allocate(otherNode, otherPod)
	if err != nil || errThen != nil {
		if isRefusal(err) && isRefusal(errThen) {
			return nil
		}
		return fmt.Errorf("PodAllocate returns %v, then %v", err, errThen)
	}
	if err := sameRequests(first, second); err != nil {
		return fmt.Errorf("PodAllocate: %w", err)
	}
	return nil
}

func (h *schedulerHalf) checkPlaces() error {
	h.placed = nil
	return h.added(func(node *types.NodeInfo) error {
		for _, s := range h.samples(node) {
			got, why, err := h.place(node, s.pod)
			if err == nil && why != "" && s.plain != "" {
				err = errors.New("which the node has, " + why)
			}
			if err == nil && why == "" {
				err = checkServed(node, got)
			}
			if err != nil {
				return fmt.Errorf("for a pod that requests %s, %w", s.what, err)
			}
			if why == "" && requests(got) {
				h.placed = append(h.placed, placed{s.what, got})
			}
		}
		if len(h.placed) == 0 {
			return errors.New("no pod that fits is allocated anything")
		}
		return nil
	})
}

// checkServed checks that each request of an allocation is served by the node.
func checkServed(node *types.NodeInfo, pod *types.PodInfo) error {
	for _, containers := range []map[string]types.ContainerInfo{pod.InitContainers, pod.RunningContainers} {
		for name, container := range containers {
			for request := range container.DevRequests {
				from, ok := container.AllocateFrom[request]
				if !ok {
					return fmt.Errorf("nothing serves %s of container %q: AllocateFrom lacks it", request, name)
				}
				if _, has := node.Allocatable[from]; !has {
					return fmt.Errorf("%s of container %q is served by %s, which the node does not have",
						request, name, from)
				}
			}
		}
	}
	return checkWithin(node, held(pod))
}

// checkWithin checks that no more is held than there is.
func checkWithin(node *types.NodeInfo, held types.ResourceList) error {
	for _, name := range slices.Sorted(maps.Keys(held)) {
		if held[name] > node.Allocatable[name] {
			return fmt.Errorf("%d of %s are allocated, of %s", held[name], name, quantity(node.Allocatable, name))
		}
	}
	return nil
}

// maxPods is how many pods are put on a node.
const maxPods = 64

func (h *schedulerHalf) checkCapacity() error {
	return h.added(func(node *types.NodeInfo) error {
		for _, plain := range h.plains() {
			all := h.node.KubeAlloc[plain]
			too := []sample{counting(plain, all+1, "main"), counting(plain, all, "main", "side")}
			for _, s := range too {
				if err := h.mustNotFit(node, s); err != nil {
					return err
				}
			}
			if err := h.fill(node, counting(plain, 1, "main"), all); err != nil {
				return err
			}
		}
		for _, path := range paths(node) {
			var most int64
			for name, quantity := range node.Allocatable {
				if other, err := resource.ParsePath(name); err == nil && other.DeviceLevel() == path.DeviceLevel() &&
					other.Resource() == path.Resource() {
					most = max(most, quantity)
				}
			}
			if resource.IsEnumResource(path.Name()) || most == math.MaxInt64 {
				continue
			}
			if err := h.mustNotFit(node, byPath(path, most+1)); err != nil {
				return err
			}
		}
		return nil
	})
}

// mustNotFit returns an error if the pod, which requests more than the node has, is placed on it.
func (h *schedulerHalf) mustNotFit(node *types.NodeInfo, s sample) error {
	got, why, err := h.place(node, s.pod)
	switch {
	case err != nil:
		return fmt.Errorf("for a pod that requests %s, %w", s.what, err)
	case why == "" && (requests(got) || s.plain != ""):
		return fmt.Errorf("a pod that requests %s fits a node that has less", s.what)
	}
	return nil
}

// fill puts pods on the node until the next one does not fit.
func (h *schedulerHalf) fill(node *types.NodeInfo, s sample, all int64) error {
	var pods []*types.PodInfo
	total := types.ResourceList{}
	for len(pods) < maxPods {
		state, err := h.with(node, pods...)
		if err != nil {
			return err
		}
		got, why, err := h.place(state, s.pod)
		if err != nil {
			return fmt.Errorf("for a pod that requests %s beside %d others, %w", s.what, len(pods), err)
		}
		if why != "" {
			return nil
		}
		got.Name = fmt.Sprintf("pod-%d", len(pods)+1)
		pods = append(pods, got)
		grouptree.Take(total, held(got))
		if int64(len(pods)) > all {
			return fmt.Errorf("%d pods that request %s each fit a node that has %d", len(pods), s.what, all)
		}
		if err := checkWithin(node, total); err != nil {
			return fmt.Errorf("with %d pods that request %s each, %w", len(pods), s.what, err)
		}
	}
	return nil
}

func (h *schedulerHalf) checkReasons() error {
	return h.added(func(node *types.NodeInfo) error {
		refusals := 0
		for _, plain := range h.plains() {
			s := counting(plain, h.node.KubeAlloc[plain]+1, "main")
			here, err := h.fits(node, s.pod)
			if err != nil {
				return err
			}
			elsewhere := node.Clone()
			elsewhere.Name = "another-node"
			there, err := h.fits(elsewhere, s.pod)
			if err != nil {
				return err
			}
			if here.fits || there.fits {
				continue // the group scheduler refuses it, with reasons of its own
			}
			refusals++
			if len(here.reasons) == 0 {
				return fmt.Errorf("for a pod that requests %s there is none", s.what)
			}
			for _, reason := range here.reasons {
				if reason == nil || strings.TrimSpace(reason.GetReason()) == "" {
					return fmt.Errorf("for a pod that requests %s there is an empty one", s.what)
				}
				reason.GetInfo()
			}
			if a, b := sayReasons(here.reasons), sayReasons(there.reasons); a != b {
				return fmt.Errorf("for a pod that requests %s it is %q on one node and %q on another like it",
					s.what, a, b)
			}
		}
		if refusals == 0 {
			return notApplicable("it leaves refusals to the group scheduler")
		}
		return nil
	})
}

func (h *schedulerHalf) checkOthers() error {
	return h.added(func(node *types.NodeInfo) error {
		path, err := resource.ParsePath(foreign.ownName())
		if err != nil {
			return err
		}
		without := types.NewNodeInfoWithName("node-without-devices")
		for _, s := range []sample{
			{what: "no devices", pod: podOf(types.NewContainerInfo())},
			{what: "no containers", pod: types.NewPodInfo()},
			counting("another.example/device", 1, "main"),
			byPath(path, 1),
		} {
			for _, on := range []*types.NodeInfo{node, without} {
				a, err := h.fits(on, s.pod)
				if err != nil {
					return fmt.Errorf("for a pod that requests %s, %w", s.what, err)
				}
				if !a.fits {
					return fmt.Errorf("a pod that requests %s does not fit: %s", s.what, sayReasons(a.reasons))
				}
				if requests(a.pod) {
					return fmt.Errorf("for a pod that requests %s it requests devices", s.what)
				}
			}
		}
		if !h.groups {
			return nil
		}
		_, container := claim(foreign)
		before := node.Clone()
		state := node.Clone()
		if err := h.take(state, podOf(container)); err != nil {
			return fmt.Errorf("for a pod that holds a device of another plugin, %w", err)
		}
		return sameInventory(before, state)
	})
}

func (h *schedulerHalf) checkTake() error {
	return h.eachServed(func(node *types.NodeInfo, s sample, first *types.PodInfo) error {
		once, twice := node.Clone(), node.Clone()
		pod := first.Clone()
		if err := h.call("TakePodResources", func() error { return h.plugin.TakePodResources(once, pod) }); err != nil {
			return err
		}
		if !reflect.DeepEqual(first.Clone(), pod.Clone()) {
			return errors.New("it changes the pod")
		}
		if err := h.take(twice, first); err != nil {
			return err
		}
		if err := sameInventory(once, twice); err != nil {
			return fmt.Errorf("done again on a copy, %w", err)
		}
		once.Used = maps.Clone(node.Used)
		if err := sameInventory(node, once); err != nil {
			return fmt.Errorf("it changes %w", err)
		}

		state, err := h.with(node, first)
		if err != nil {
			return err
		}
		second, why, err := h.place(state, s.pod)
		if err != nil || why != "" {
			return err // there is no other one
		}
		one, err := h.with(node, first, second)
		if err != nil {
			return err
		}
		other, err := h.with(node, second, first)
		if err != nil {
			return err
		}
		if err := sameList(withoutZeros(one.Used), withoutZeros(other.Used)); err != nil {
			return fmt.Errorf("what two pods use depends on their order: %w", err)
		}
		return nil
	})
}

func (h *schedulerHalf) checkReturn() error {
	return h.eachServed(func(node *types.NodeInfo, _ sample, allocated *types.PodInfo) error {
		busy := node.Clone()
		for name := range node.Allocatable {
			busy.Used[name] = 1
		}
		for _, before := range []*types.NodeInfo{node, busy} {
			state := before.Clone()
			if err := errors.Join(h.take(state, allocated), h.giveBack(state, allocated)); err != nil {
				return err
			}
			if err := sameList(withoutZeros(before.Used), withoutZeros(state.Used)); err != nil {
				return fmt.Errorf("Used: %w", err)
			}
			state.Used = before.Used
			if err := sameInventory(before, state); err != nil {
				return err
			}
		}
		return nil
	})
}

func (h *schedulerHalf) checkGone() error {
	return h.eachServed(func(node *types.NodeInfo, _ sample, allocated *types.PodInfo) error {
		pod := allocated.Clone()
		for _, container := range pod.RunningContainers {
			for request, from := range container.AllocateFrom {
				if path, err := resource.ParsePath(from); err == nil && path.Depth() > 0 {
					gone := deviceOf{path.Device(), types.ResourceList{from: 1}}.renamed(noSuchDevice)
					container.AllocateFrom[request] = gone.ownName()
				}
			}
		}
		return errors.Join(h.take(node.Clone(), pod), h.giveBack(node.Clone(), pod))
	})
}

func (h *schedulerHalf) checkPure() error {
	pure, ok := h.plugin.(devicescheduler.Pure)
	if !ok || !pure.Pure() {
		return notApplicable("it does not say that it is Pure")
	}
	return h.eachServed(func(node *types.NodeInfo, s sample, _ *types.PodInfo) error {
		otherNode, otherPod := node.Clone(), s.pod.Clone()
		otherNode.Name, otherPod.Name = "another-node", "another-pod"
		if err := h.sameAnswers(node, s.pod, otherNode, otherPod); err != nil {
			return fmt.Errorf("with other names of pod and node, %w", err)
		}
		before, err := h.fits(node, s.pod)
		if err != nil {
			return err
		}
		if _, err := h.add(larger(h.node)); err != nil {
			return err
		}
		after, err := h.fits(node, s.pod)
		if err != nil {
			return err
		}
		if err := sameRequests(before.pod, after.pod); err != nil || before.fits != after.fits {
			return fmt.Errorf("when another node has been reported, it fits %v, then %v (%v)", before.fits,
				after.fits, err)
		}
		return h.call("RemoveNode", func() error { h.plugin.RemoveNode(largerNode); return nil })
	})
}

// largerNode is the name of the node of larger.
const largerNode = "larger-node"

// larger returns a node with twice the devices, in other groups.
func larger(node *types.NodeInfo) *types.NodeInfo {
	other := node.Clone()
	other.Name = largerNode
	for _, one := range devices(node) {
		twin := one.renamed(one.path[strings.LastIndexByte(one.path, '/')+1:] + "-twin")
		for name, quantity := range twin.resources {
			other.Capacity[name], other.Allocatable[name] = quantity, quantity
		}
	}
	for name, quantity := range node.KubeAlloc {
		for _, list := range []types.ResourceList{other.Capacity, other.Allocatable, other.KubeCap, other.KubeAlloc} {
			list[name] = 2 * quantity
		}
	}
	return other
}

func (h *schedulerHalf) checkTranslator() error {
	translator, ok := h.plugin.(devicescheduler.Translator)
	if !ok || !h.plugin.UsingGroupScheduler() {
		return notApplicable("it is no Translator that uses the group scheduler")
	}
	return h.eachServed(func(node *types.NodeInfo, s sample, allocated *types.PodInfo) error {
		full := node.Clone()
		full.Used = maps.Clone(node.Allocatable)
		if err := h.sameAnswers(node, s.pod, full, s.pod); err != nil {
			return fmt.Errorf("when all devices are used, %w", err)
		}
		empty, used := node.Clone(), full.Clone()
		if err := errors.Join(h.take(empty, allocated), h.take(used, allocated)); err != nil {
			return err
		}
		for name, quantity := range full.Used {
			used.Used[name] -= quantity
		}
		if err := sameList(withoutZeros(empty.Used), withoutZeros(used.Used)); err != nil {
			return fmt.Errorf("what TakePodResources adds depends on what is used: %w", err)
		}

		before, err := h.fits(node, s.pod)
		if err != nil {
			return err
		}
		revision := translator.Revision()
		if _, err := h.add(larger(h.node)); err != nil {
			return err
		}
		after, err := h.fits(node, s.pod)
		if err != nil {
			return err
		}
		grown := translator.Revision()
		if grown < revision {
			return fmt.Errorf("Revision falls from %d to %d", revision, grown)
		}
		if difference := sameRequests(before.pod, after.pod); grown == revision &&
			(difference != nil || before.fits != after.fits) {
			return fmt.Errorf("when another node has been reported, the requests are others and Revision is "+
				"still %d: %v",
				revision, difference)
		}
		return h.call("RemoveNode", func() error { h.plugin.RemoveNode(largerNode); return nil })
	})
}

func (h *schedulerHalf) checkConcurrent() error {
	safe, ok := h.plugin.(devicescheduler.ConcurrentSafe)
	if !ok || !safe.ConcurrentSafe() {
		return notApplicable("it does not say that it is safe for concurrent use: its calls wait for each other")
	}
	return h.added(func(node *types.NodeInfo) error {
		list, allocated, err := h.served(node)
		if err != nil {
			return err
		}
		alone := make([]answer, len(list))
		for i, s := range list {
			if alone[i], err = h.fits(node, s.pod); err != nil {
				return err
			}
		}
		return concurrentCalls(h.options.Limits.Concurrent, func(caller, round int) error {
			i := (caller + round) % len(list)
			if caller == 0 {
				_, err := h.add(h.node)
				return err
			}
			if caller == 1 {
				return h.take(node.Clone(), allocated[i])
			}
			a, err := h.fits(node, list[i].pod)
			if err != nil {
				return err
			}
			if err := sameRequests(alone[i].pod, a.pod); err != nil || a.fits != alone[i].fits {
				return fmt.Errorf("among calls at the same time, a pod that requests %s has another answer (%v)",
					list[i].what, err)
			}
			return nil
		})
	})
}

func (h *schedulerHalf) checkAfterWait() error {
	patient, ok := h.plugin.(devicescheduler.Patient)
	if !ok {
		return notApplicable("it is not Patient")
	}
	waited := *h
	waited.asked = patient.AfterWait()
	for _, name := range []string{fitsCheck, "score", "writes", "same", placesCheck, "capacity"} {
		c, _ := find(schedulerChecks(), name)
		if err := c.run(&waited); err != nil {
			return fmt.Errorf("in the check %s, %w", name, err)
		}
	}
	return nil
}

func (h *schedulerHalf) checkObserver() error {
	observer, ok := h.plugin.(devicescheduler.PodObserver)
	if !ok {
		return notApplicable("it is no PodObserver")
	}
	return h.eachServed(func(_ *types.NodeInfo, _ sample, allocated *types.PodInfo) error {
		holds := func(uid string, pod *types.PodInfo) error {
			given := pod.Clone()
			return h.call("PodHolds", func() error { observer.PodHolds(nodeName, uid, given); return nil })
		}
		gone := func(uid string) error {
			return h.call("PodGone", func() error { observer.PodGone(nodeName, uid); return nil })
		}
		return errors.Join(gone("never-there"), holds("uid-1", allocated), holds("uid-2", types.NewPodInfo()),
			gone("uid-1"), gone("uid-2"))
	})
}

// observe returns what must be the same in another process.
func (h *schedulerHalf) observe() ([]string, error) {
	var lines []string
	err := h.eachServed(func(_ *types.NodeInfo, s sample, allocated *types.PodInfo) error {
		for _, containers := range []map[string]types.ContainerInfo{allocated.InitContainers,
			allocated.RunningContainers} {
			for _, name := range slices.Sorted(maps.Keys(containers)) {
				container := containers[name]
				for _, request := range slices.Sorted(maps.Keys(container.DevRequests)) {
					lines = append(lines, fmt.Sprintf("for a pod that requests %s: container %s: %d %s from %s",
						s.what, name,
						container.DevRequests[request], request, container.AllocateFrom[request]))
				}
			}
		}
		return nil
	})
	return lines, err
}
