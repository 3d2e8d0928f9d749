// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"iter"
	"math/bits"
)

// places is a set of places in the snapshot's list of nodes, by bits.
type places []uint64

func newPlaces(count int) places { return make(places, (count+63)/64) }

// put makes a place part of the set, or not.
func (p places) put(place int, in bool) {
	bit := uint64(1) << (place % 64)
	if in {
		p[place/64] |= bit
	} else {
		p[place/64] &^= bit
	}
}

func (p places) count() (count int) {
	for _, word := range p {
		count += bits.OnesCount64(word)
	}
	return count
}

// all returns the places in order.
func (p places) all() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, word := range p {
			for ; word != 0; word &= word - 1 {
				if !yield(i*64 + bits.TrailingZeros64(word)) {
					return
				}
			}
		}
	}
}
