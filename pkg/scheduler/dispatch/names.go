// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// deviceNames are the extended resources that are devices on a node. The others, if it has any, are
// counted by its kubelet, and nobody here has to do with them. Most nodes of a cluster have the
// same ones and share them, so a request is compared with them once for all these nodes.
type deviceNames map[types.ResourceName]bool

func (d *deviceNames) has(name types.ResourceName) bool { return (*d)[name] }

// maxDeviceNames is how many different deviceNames are shared.
const maxDeviceNames = 1 << 8

// deviceNames returns the extended resources that are devices on a node: those that its inventory
// lists, and those that a plugin claims and the kubelet does not count. An inventory is a node's
// own word, and so it is about this node only.
func (s *Set) deviceNames(node *types.NodeInfo) *deviceNames {
	names := deviceNames{}
	for name := range node.Capacity {
		if resource.IsExtendedResource(name) {
			names[name] = true
		}
	}
	for name := range s.claimed {
		if node.KubeCap[name] <= 0 && node.KubeAlloc[name] <= 0 {
			names[name] = true
		}
	}
	return s.shared(names)
}

// shared returns the names that other nodes have, if they are the same.
func (s *Set) shared(names deviceNames) *deviceNames {
	var key strings.Builder
	for _, name := range slices.Sorted(maps.Keys(names)) {
		key.WriteString(string(name))
		key.WriteByte(' ') // which no extended resource has
	}
	if known, ok := s.names.Get(key.String()); ok {
		return known
	}
	s.names.Add(key.String(), &names)
	return &names
}

// hideKubelets removes from a node what its kubelet counts of extended resources that are not the
// node's devices, so that no plugin takes them for its own.
func hideKubelets(node *types.NodeInfo, devices *deviceNames) {
	isKubelets := func(name types.ResourceName, _ int64) bool {
		return resource.IsExtendedResource(name) && !(*devices)[name]
	}
	maps.DeleteFunc(node.KubeCap, isKubelets)
	maps.DeleteFunc(node.KubeAlloc, isKubelets)
}
