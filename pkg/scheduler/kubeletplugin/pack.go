// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// packer chooses counted devices of one container: from the fewest places beyond those where it has devices already, and of
// equally many from those that have the fewest left over.
type packer struct {
	to     *container
	counts map[types.ResourceName]int
	of     func(*place, types.ResourceName, *container) []*device // those to choose from

	places []*place // that have something of what is counted
	chosen []*place // while they are tried
	steps  int

	best     []*place
	bestLeft int
}

// pack finds the places. It returns false when all of them have too few.
func (k *packer) pack(from stock) bool {
	own := k.to.places()
	for _, p := range from {
		if !slices.Contains(own, p) && k.reach(p) > 0 {
			k.places = append(k.places, p)
		}
	}
	k.chosen = slices.Clone(own)
	found := false
	for n := 0; n <= len(k.places) && !found && k.steps < stepLimit; n++ {
		found = k.choose(k.places, n)
	}
	if !found { // also when there are too many ways to go through
		k.best = append(own, k.places...)
		found = k.left(k.best) >= 0
	}
	slices.SortStableFunc(k.best, func(a, b *place) int { return cmp.Compare(k.reach(b), k.reach(a)) })
	return found
}

// choose tries all ways to add n of the places to those chosen, and reports whether one will do.
func (k *packer) choose(places []*place, n int) bool {
	k.steps++
	if n == 0 {
		left := k.left(k.chosen)
		if left >= 0 && (k.best == nil || left < k.bestLeft) {
			k.best, k.bestLeft = slices.Clone(k.chosen), left
		}
		return left >= 0
	}
	found := false
	for i := 0; i+n <= len(places) && k.steps < stepLimit; i++ {
		k.chosen = append(k.chosen, places[i])
		found = k.choose(places[i+1:], n-1) || found
		k.chosen = k.chosen[:len(k.chosen)-1]
	}
	return found
}

// left returns how many devices of what is counted are left over at some places, or -1 when they have too few.
func (k *packer) left(places []*place) int {
	left := 0
	for resource, n := range k.counts {
		has := 0
		for _, p := range places {
			has += len(k.of(p, resource, k.to))
		}
		if has < n {
			return -1
		}
		left += has - n
	}
	return left
}

// reach returns how many of the counted devices a place could give.
func (k *packer) reach(p *place) int {
	reach := 0
	for resource, n := range k.counts {
		reach += min(n, len(k.of(p, resource, k.to)))
	}
	return reach
}

// give gives the devices, as many as each place has in turn.
func (k *packer) give() error {
	missing := maps.Clone(k.counts)
	for _, p := range k.best {
		placeholder := k.to.fresh(p)
		for _, resource := range slices.Sorted(maps.Keys(missing)) {
			devices := k.of(p, resource, k.to)
			for i, d := range devices[:min(len(devices), missing[resource])] {
				request, err := kubeletdevice.Request(resource, placeholder, strconv.Itoa(i))
				if err != nil {
					return err
				}
				k.to.give(request, p, d)
				missing[resource]--
			}
		}
	}
	return nil
}
