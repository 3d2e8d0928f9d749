// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"maps"
	"reflect"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func (h *schedulerPlugin) checkTake() error {
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

		state, err := h.withPods(node, first)
		if err != nil {
			return err
		}
		second, why, err := h.place(state, s.pod)
		if err != nil || why != "" {
			return err // there is no other one
		}
		one, err := h.withPods(node, first, second)
		if err != nil {
			return err
		}
		other, err := h.withPods(node, second, first)
		if err != nil {
			return err
		}
		if err := sameList(withoutZeros(one.Used), withoutZeros(other.Used)); err != nil {
			return fmt.Errorf("what two pods use depends on their order: %w", err)
		}
		return nil
	})
}

func (h *schedulerPlugin) checkReturn() error {
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

func (h *schedulerPlugin) checkGone() error {
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
