// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package utils

import (
	"maps"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// CompareMapStringString reports whether a and b have the same entries. Here and below, a nil map
// equals an empty one.
func CompareMapStringString(a, b map[string]string) bool {
	return maps.Equal(a, b)
}

// CompareContainer reports whether a and b are equal in all fields. Two nil pointers are equal.
func CompareContainer(a, b *types.ContainerInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return maps.Equal(a.KubeRequests, b.KubeRequests) &&
		maps.Equal(a.Requests, b.Requests) &&
		maps.Equal(a.DevRequests, b.DevRequests) &&
		maps.Equal(a.AllocateFrom, b.AllocateFrom) &&
		maps.Equal(a.Scorer, b.Scorer)
}

// CompareContainers reports whether a and b hold equal containers under the same names.
func CompareContainers(a, b map[string]types.ContainerInfo) bool {
	return maps.EqualFunc(a, b, func(x, y types.ContainerInfo) bool { return CompareContainer(&x, &y) })
}

// ComparePod reports whether a and b are equal in all fields. Two nil pointers are equal.
func ComparePod(a, b *types.PodInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Name == b.Name &&
		a.NodeName == b.NodeName &&
		maps.Equal(a.Requests, b.Requests) &&
		CompareContainers(a.InitContainers, b.InitContainers) &&
		CompareContainers(a.RunningContainers, b.RunningContainers)
}

// CompareNode reports whether a and b are equal in all fields. Two nil pointers are equal.
func CompareNode(a, b *types.NodeInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Name == b.Name &&
		maps.Equal(a.Capacity, b.Capacity) &&
		maps.Equal(a.Allocatable, b.Allocatable) &&
		maps.Equal(a.Used, b.Used) &&
		maps.Equal(a.Scorer, b.Scorer) &&
		maps.Equal(a.KubeCap, b.KubeCap) &&
		maps.Equal(a.KubeAlloc, b.KubeAlloc)
}
