// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"fmt"
	"maps"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// newReport returns an empty NodeInfo for a plugin to fill in, with maps as large as those of its
// last report.
func newReport(nodeName string, last *types.NodeInfo) *types.NodeInfo {
	if last == nil {
		return types.NewNodeInfoWithName(nodeName)
	}
	return &types.NodeInfo{
		Name:        nodeName,
		Capacity:    make(types.ResourceList, len(last.Capacity)),
		Allocatable: make(types.ResourceList, len(last.Allocatable)),
		Used:        make(types.ResourceList, len(last.Used)),
		Scorer:      make(types.ResourceScorer, len(last.Scorer)),
		KubeCap:     make(types.ResourceList, len(last.KubeCap)),
		KubeAlloc:   make(types.ResourceList, len(last.KubeAlloc)),
	}
}

// equalInfo reports whether both say the same. The name is the node's in any case.
func equalInfo(a, b *types.NodeInfo) bool {
	return maps.Equal(a.Capacity, b.Capacity) && maps.Equal(a.Allocatable, b.Allocatable) &&
		maps.Equal(a.Used, b.Used) &&
		maps.Equal(a.Scorer, b.Scorer) && maps.Equal(a.KubeCap, b.KubeCap) && maps.Equal(a.KubeAlloc, b.KubeAlloc)
}

// CheckReport returns why what a plugin reports cannot be published, or nil.
func CheckReport(info *types.NodeInfo) error {
	if _, err := deviceinfo.EncodeNode(info); err != nil {
		return fmt.Errorf("its report of the node cannot be published: %w", err)
	}
	for _, list := range []types.ResourceList{info.KubeCap, info.KubeAlloc} {
		for name, quantity := range list {
			if !resource.IsExtendedResource(name) {
				return fmt.Errorf("resource %q is no name for an extended resource: it must be like vendor.com/device",
					name)
			}
			if quantity < 0 {
				return fmt.Errorf("resource %q has the negative quantity %d", name, quantity)
			}
		}
	}
	return nil
}
