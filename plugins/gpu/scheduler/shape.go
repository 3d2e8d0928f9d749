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

// topology is a node's GPUs, or those that a container requests, by their wide groups.
//
// How n GPUs are best spread over a node's groups: over as few wide groups as possible, and inside
// those over as few close groups as possible.
//
// A container that requires topology gets the best-connected topology that any node can give, by
// those two numbers. So the choice depends on all nodes, and on nothing else: not on what is in
// use. One that prefers it gets the best-connected GPUs that are free on its node: that depends on
// no other node.
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

// take returns the best-connected n GPUs of a canonical topology, and what is left of it; nil when
// there are fewer. It takes whole wide groups, the largest first, until a single one can hold the
// rest; that one is the one that needs the fewest close groups for it.
func (t topology) take(n int) (taken, left topology) {
	if n <= 0 || t.size() < n {
		return nil, t
	}
	left = slices.Clone(t)
	for {
		best, some, rest := -1, group(nil), group(nil)
		for i, wide := range left {
			from, without := wide.take(n)
			if from != nil && (best < 0 || len(from) < len(some)) {
				best, some, rest = i, from, without
			}
		}
		if best >= 0 {
			taken = append(taken, some)
			if left = slices.Delete(left, best, best+1); len(rest) > 0 {
				left = append(left, rest)
			}
			return taken.canonical(), left.canonical()
		}
		taken = append(taken, slices.Clone(left[0]))
		n -= left[0].size()
		left = left[1:]
	}
}

// take returns how n GPUs are spread over the fewest close groups, and what is left of the group;
// nil when there are fewer GPUs.
func (g group) take(n int) (taken, left group) {
	if g.size() < n {
		return nil, g
	}
	for _, close := range g {
		some := min(close, n)
		if some > 0 {
			taken = append(taken, some)
		}
		if close > some {
			left = append(left, close-some)
		}
		n -= some
	}
	return taken, left
}

// quality says how well a topology connects its GPUs: 1 in one close group, less over several of
// one wide group, and less again over several wide groups.
func (t topology) quality() float64 {
	closeGroups := 0
	for _, wide := range t {
		closeGroups += len(wide)
	}
	return (1/float64(len(t)) + 1/float64(closeGroups)) / 2
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
