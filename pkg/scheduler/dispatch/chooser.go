// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"maps"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Chooser is implemented by the built-in device scheduler for hosted devices. It chooses them by itself and has the group
// scheduler check the choice and account for it; its score counts beside the group scheduler's. The group scheduler has
// nothing to do with other devices for its sake.
type Chooser interface {
	devicescheduler.Specialist
	// Serves reports whether it has to do with the plain resource, on any node. That changes as nodes come and go.
	Serves(name types.ResourceName) bool
	// Revision grows whenever Serves changes.
	Revision() uint64
	// Choose stands for PodFitsDevice and PodAllocate: it writes DevRequests and AllocateFrom. spec lists the pod's containers
	// in the order of its spec. The score is from 0 to 1, and 0 when it has nothing to do with the pod on this node. The error
	// is the reason why the pod does not fit, in a NeverError if it would not fit if the node were empty either.
	Choose(node *types.NodeInfo, pod *types.PodInfo, spec []grouptree.Container) (score float64, err error)
}

// NeverError is the reason why a pod does not fit a node where no eviction changes that.
type NeverError struct{ Reason error }

// Error returns the reason.
func (e NeverError) Error() string { return e.Reason.Error() }

// Unwrap returns the reason.
func (e NeverError) Unwrap() error { return e.Reason }

// becomeChooser learns whether the plugin is the chooser. kinds are known.
func (c *contained) becomeChooser(plugin devicescheduler.DeviceScheduler) {
	if chooser, ok := plugin.(Chooser); ok {
		c.chooser, c.kinds.serves = chooser, chooser.Serves
	}
}

// usesGroups reports whether the group scheduler has to do with the pod as the plugins translated it for a node.
func (s *Set) usesGroups(pod *types.PodInfo) bool {
	return s.groups || s.chooser != nil && hasHosted(pod.RunningContainers, pod.InitContainers)
}

// hasHosted reports whether any container was given hosted devices.
func hasHosted(lists ...map[string]types.ContainerInfo) bool {
	for _, containers := range lists {
		for _, info := range containers {
			for name := range info.DevRequests {
				if _, _, _, ok := kubeletdevice.ParseRequest(name); ok {
					return true
				}
			}
		}
	}
	return false
}

// accounted returns what the group scheduler accounts for of what a pod holds.
func (s *Set) accounted(held types.ResourceList) types.ResourceList {
	if s.groups {
		return held
	}
	of := types.ResourceList{}
	for name, quantity := range held {
		if s.chooser.kinds.has(name) {
			of[name] = quantity
		}
	}
	return of
}

// unhosted returns a container's counts without those that hosted devices serve: no other plugin is to serve them again.
func unhosted(info types.ContainerInfo) types.ResourceList {
	var rest types.ResourceList
	for name := range info.DevRequests {
		resource, _, _, ok := kubeletdevice.ParseRequest(name)
		if !ok || info.KubeRequests[resource] == 0 {
			continue
		}
		if rest == nil {
			rest = maps.Clone(info.KubeRequests)
		}
		delete(rest, resource)
	}
	if rest == nil {
		return info.KubeRequests
	}
	return rest
}
