// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// kinds are the device resources that a specialist serves. A nil one stands for all.
type kinds struct {
	plain    map[types.ResourceName]bool
	levels   map[string]bool
	options  map[types.ResourceName]bool // nil: unknown
	topology map[types.ResourceName]bool // of options
}

func newKinds(served devicescheduler.Kinds) *kinds {
	k := &kinds{
		plain: map[types.ResourceName]bool{}, levels: map[string]bool{}, topology: map[types.ResourceName]bool{},
	}
	for _, name := range served.Plain {
		k.plain[name] = true
	}
	for _, level := range served.Levels {
		k.levels[level] = true
	}
	if served.Options != nil {
		k.options = map[types.ResourceName]bool{}
	}
	for _, option := range served.Options {
		k.options[resource.WithPrefix(option)] = true
	}
	for _, option := range served.Topology {
		k.topology[resource.WithPrefix(option)] = true
	}
	return k
}

// has reports whether a resource is of these kinds.
func (k *kinds) has(name types.ResourceName) bool {
	if k.plain[name] {
		return true
	}
	rest := strings.TrimPrefix(string(name), types.DeviceGroupPrefix+"/")
	for isLevel := true; ; isLevel = !isLevel {
		segment, after, more := strings.Cut(rest, "/")
		if !more { // the resource
			return false
		}
		if isLevel && k.levels[segment] {
			return true
		}
		rest = after
	}
}

// mayRead reports whether a request that is for no device may be an option of these devices.
func (k *kinds) mayRead(request types.ResourceName) bool {
	if k.options == nil {
		return k.has(request)
	}
	return k.options[resource.WithPrefix(request)]
}

// mayConcern reports whether a pod requests or holds anything of these kinds.
func (k *kinds) mayConcern(pod *types.PodInfo) bool {
	if k == nil || hasAny(k, pod.Requests) {
		return true
	}
	for _, info := range pod.Containers() {
		if hasAny(k, info.Requests) || hasAny(k, info.KubeRequests) || hasAny(k, info.DevRequests) ||
			hasAny(k, info.AllocateFrom) {
			return true
		}
		for _, from := range info.AllocateFrom {
			if k.has(from) {
				return true
			}
		}
	}
	return false
}

func hasAny[V any](k *kinds, list map[types.ResourceName]V) bool {
	for name := range list {
		if k.has(name) {
			return true
		}
	}
	return false
}
