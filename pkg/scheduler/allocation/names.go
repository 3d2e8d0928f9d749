// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"maps"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// deviceNames are the extended resources that are devices on a node. Its kubelet counts the others,
// if it has any, and no device scheduler sees them.
type deviceNames map[types.ResourceName]bool

func (d deviceNames) has(name types.ResourceName) bool { return d[name] }

// hideKubelets removes from a node what its kubelet counts of extended resources that are not the
// node's devices, so that no plugin takes them for its own.
func hideKubelets(node *types.NodeInfo, devices deviceNames) {
	isKubelets := func(name types.ResourceName, _ int64) bool {
		return resource.IsExtendedResource(name) && !devices.has(name)
	}
	maps.DeleteFunc(node.KubeCap, isKubelets)
	maps.DeleteFunc(node.KubeAlloc, isKubelets)
}
