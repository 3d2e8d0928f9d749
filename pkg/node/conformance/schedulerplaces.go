// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func (h *schedulerPlugin) checkPlaces() error {
	h.placed = nil
	return h.withNode(func(node *types.NodeInfo) error {
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
	return checkWithin(node, heldResources(pod))
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

func (h *schedulerPlugin) checkCapacity() error {
	return h.withNode(func(node *types.NodeInfo) error {
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
func (h *schedulerPlugin) mustNotFit(node *types.NodeInfo, s sample) error {
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
func (h *schedulerPlugin) fill(node *types.NodeInfo, s sample, all int64) error {
	var pods []*types.PodInfo
	total := types.ResourceList{}
	for len(pods) < maxPods {
		state, err := h.withPods(node, pods...)
		if err != nil {
			return err
		}
		got, why, err := h.place(state, s.pod)
		if err != nil {
			return fmt.Errorf("for a pod that requests %s next to %d others, %w", s.what, len(pods), err)
		}
		if why != "" {
			return nil
		}
		got.Name = fmt.Sprintf("pod-%d", len(pods)+1)
		pods = append(pods, got)
		grouptree.Take(total, heldResources(got))
		if int64(len(pods)) > all {
			return fmt.Errorf("%d pods that request %s each fit a node that has %d", len(pods), s.what, all)
		}
		if err := checkWithin(node, total); err != nil {
			return fmt.Errorf("with %d pods that request %s each, %w", len(pods), s.what, err)
		}
	}
	return nil
}

func (h *schedulerPlugin) checkReasons() error {
	return h.withNode(func(node *types.NodeInfo) error {
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

func (h *schedulerPlugin) checkOthers() error {
	return h.withNode(func(node *types.NodeInfo) error {
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
