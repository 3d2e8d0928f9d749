// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import "k8s.io/kubernetes/pkg/scheduler/framework"

// fewNodes is a set of nodes that tells quickly of most others that they are not in it.
type fewNodes struct {
	marks uint64 // a bit for each node, the same for some
	nodes map[*framework.NodeInfo]struct{}
}

func (f *fewNodes) add(nodeInfo *framework.NodeInfo) {
	f.marks |= mark(nodeInfo)
	f.nodes[nodeInfo] = struct{}{}
}

func (f *fewNodes) has(nodeInfo *framework.NodeInfo) bool {
	if f.marks&mark(nodeInfo) == 0 {
		return false
	}
	_, has := f.nodes[nodeInfo]
	return has
}

// mark returns a node's bit.
func mark(nodeInfo *framework.NodeInfo) uint64 { return 1 << (hash(nodeInfo) >> 58) }
