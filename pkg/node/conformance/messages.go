// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import "github.com/kubedevice/kubedevice/pkg/sdk/types"

// node is a NodeInfo with what its JSON form leaves out.
type node struct {
	Info               *types.NodeInfo
	KubeCap, KubeAlloc types.ResourceList
}

func newNode(info *types.NodeInfo) *node {
	return &node{Info: info, KubeCap: info.KubeCap, KubeAlloc: info.KubeAlloc}
}

// placed is the allocation of a pod that a scheduler plugin made.
type placed struct {
	What string // what the pod requests, in words
	Pod  *types.PodInfo
}
