// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func (h *schedulerPlugin) checkFits() error {
	return h.withNode(func(node *types.NodeInfo) error {
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
func (h *schedulerPlugin) eachServed(do func(node *types.NodeInfo, s sample, allocated *types.PodInfo) error) error {
	return h.withNode(func(node *types.NodeInfo) error {
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

func (h *schedulerPlugin) checkScore() error {
	return h.eachServed(func(node *types.NodeInfo, s sample, allocated *types.PodInfo) error {
		used, err := h.withPods(node, allocated)
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

func (h *schedulerPlugin) checkWrites() error {
	return h.eachServed(func(node *types.NodeInfo, s sample, _ *types.PodInfo) error {
		pod := s.pod.Clone()
		const theirs types.ResourceName = "resource/group/another-vendors-device/0/units"
		for name, container := range pod.RunningContainers {
			container.DevRequests[theirs], container.AllocateFrom[theirs] = 1, theirs
			pod.RunningContainers[name] = container
		}
		for method, write := range map[string]func(*types.NodeInfo, *types.PodInfo) error{
			"PodFitsDevice": func(node *types.NodeInfo, pod *types.PodInfo) error {
				h.answering.PodFitsDevice(node, pod, false)
				return nil
			},
			"PodAllocate": h.answering.PodAllocate,
		} {
			allocated, left := node.Clone(), pod.Clone()
			if err := h.call(method, func() error { return write(allocated, left) }); err != nil {
				return err
			}
			if err := sameInventory(node, allocated); err != nil {
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

func (h *schedulerPlugin) checkSame() error {
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
func (h *schedulerPlugin) sameAnswers(
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

func (h *schedulerPlugin) checkConcurrent() error {
	safe, ok := h.plugin.(devicescheduler.ConcurrentSafe)
	if !ok || !safe.ConcurrentSafe() {
		return notApplicable("it does not say that it is safe for concurrent use: its calls wait for each other")
	}
	return h.withNode(func(node *types.NodeInfo) error {
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

// observe returns what must be the same in another process.
func (h *schedulerPlugin) observe() ([]string, error) {
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
