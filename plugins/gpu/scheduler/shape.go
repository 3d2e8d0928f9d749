// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"github.com/kubedevice/kubedevice/plugins/gpu"
)

// group is a wide group: the numbers of GPUs in its close groups.
type group []int

// topology is a node's GPUs, or those that a container asks for, by their wide groups.
//
// How n GPUs are best spread over a node's groups: over as few wide groups as possible, and inside
// those over as few close groups as possible. The best-connected topology that any node can give,
// by those two numbers, is what a container with n GPUs asks for. So the choice depends on all
// nodes, and on nothing else: not on what is in use.
type topology []group

// size is the number of GPUs.
func (g group) size() int {
	n := 0
	for _, close := range g {
		n += close
	}
	return n
}

func (t topology) size() int {
	n := 0
	for _, wide := range t {
		n += wide.size()
	}
	return n
}

// canonical sorts the groups: the largest first.
func (t topology) canonical() topology {
	for _, wide := range t {
		slices.SortFunc(wide, descending)
	}
	slices.SortFunc(t, func(a, b group) int {
		return cmp.Or(descending(a.size(), b.size()), cmp.Compare(len(a), len(b)), slices.CompareFunc(a, b, descending))
	})
	return t
}

func descending(a, b int) int { return cmp.Compare(b, a) }

// key identifies a canonical topology.
func (t topology) key() string { return fmt.Sprint([]group(t)) }

// take returns the best-connected n GPUs of a canonical topology, nil when there are fewer: whole
// wide groups, the largest first, until a single one can hold the rest; that one is the one that
// needs the fewest close groups for it.
func (t topology) take(n int) topology {
	if n <= 0 || t.size() < n {
		return nil
	}
	var taken topology
	for rest := slices.Clone(t); n > 0; rest = rest[1:] {
		var best group
		for _, wide := range rest {
			if some := wide.take(n); some != nil && (best == nil || len(some) < len(best)) {
				best = some
			}
		}
		if best != nil {
			return append(taken, best).canonical()
		}
		taken = append(taken, rest[0])
		n -= rest[0].size()
	}
	return taken.canonical()
}

// take returns how n GPUs are spread over the fewest close groups, nil when there are fewer GPUs.
func (g group) take(n int) group {
	if g.size() < n {
		return nil
	}
	var taken group
	for _, close := range g {
		if n == 0 {
			break
		}
		taken = append(taken, min(close, n))
		n -= min(close, n)
	}
	return taken
}

// compareConnected is negative when a is better connected than b; both are canonical and of the
// same size.
func compareConnected(a, b topology) int {
	closeGroups := func(t topology) int {
		n := 0
		for _, wide := range t {
			n += len(wide)
		}
		return n
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(closeGroups(a), closeGroups(b)),
		slices.CompareFunc(a, b, func(x, y group) int { return slices.CompareFunc(x, y, descending) }))
}

// addTo adds the requests for exactly these GPUs to list.
func (t topology) addTo(list types.ResourceList) {
	closeGroups, gpus := 0, 0
	for i, wide := range t {
		for _, size := range wide {
			for range size {
				types.AddGroupResource(
					list,
					fmt.Sprintf("%s/%d/%s/%d/%s/%d/%s",
						gpu.Wide, i, gpu.Close, closeGroups, gpu.Level, gpus, gpu.Cards),
					1,
				)
				gpus++
			}
			closeGroups++
		}
	}
}
