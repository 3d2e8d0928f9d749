// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

// sizes are the entries of the caches: each cache has an answer for one request, on nodes in one
// state or built alike.
type sizes struct {
	fits, allocations, remainders, placements, reasons int
}

// defaultSizes are the sizes of the caches. A cluster has few kinds of pods, and of nodes; its
// nodes have many states.
var defaultSizes = sizes{
	fits: 1 << 14, allocations: 1 << 10, remainders: 1 << 10, placements: 1 << 16, reasons: 1 << 12,
}
