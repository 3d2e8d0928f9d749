// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"math/rand/v2"
	"sync/atomic"
)

// counter is a number that all CPUs can add to at once: each addition goes to one of several cache
// lines. With two CPUs, Get takes 35 ns with a counter, and 55 ns with a single atomic number.
type counter struct {
	parts [8]struct {
		atomic.Uint64
		_ [56]byte // the rest of the cache line
	}
}

func (c *counter) increment() { c.parts[rand.Uint32()%uint32(len(c.parts))].Add(1) }

func (c *counter) sum() (sum uint64) {
	for i := range c.parts {
		sum += c.parts[i].Load()
	}
	return sum
}
