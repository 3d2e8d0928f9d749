// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cache has a bounded map from keys to values that depend only on their key: an eviction
// costs only the time to compute the value again.
//
// A library's LRU takes a lock to read, but the scheduler reads from all CPUs at once. With 16
// goroutines on two CPUs, a read takes 35 ns from this cache and 105 ns from k8s.io/utils/lru; with
// one goroutine, 55 ns and 53 ns (BenchmarkGet).
package cache

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
)

// ways is how many entries share a bucket. A key belongs to one bucket, so the cache needs no list
// of recently used entries, and no lock for such a list.
const ways = 4

// Cache maps keys to values. It holds a bounded number of entries: when a bucket is full, a new
// entry replaces any other entry of that bucket. It is safe for concurrent use, and no call waits
// for another.
type Cache[K comparable, V any] struct {
	seed    maphash.Seed
	buckets []bucket[K, V] // their number is a power of two, or 0
	victim  atomic.Uint32  // selects the entry of a full bucket to replace

	hits, misses, evictions, entries counter
}

type bucket[K comparable, V any] [ways]atomic.Pointer[entry[K, V]]

// entry is immutable.
type entry[K comparable, V any] struct {
	key   K
	value V
}

// New returns an empty cache of at most entries, rounded up to 4 times a power of two. A cache of 0
// entries caches nothing: tests compare with it.
func New[K comparable, V any](entries int) *Cache[K, V] {
	c := &Cache[K, V]{seed: maphash.MakeSeed()}
	if entries > 0 {
		c.buckets = make([]bucket[K, V], 1<<bits.Len(uint((entries-1)/ways)))
	}
	return c
}

// bucket returns the bucket of the key. The cache has at least one bucket.
func (c *Cache[K, V]) bucket(key K) *bucket[K, V] {
	return &c.buckets[maphash.Comparable(c.seed, key)&uint64(len(c.buckets)-1)]
}

// Get returns the last added value for the key, if the cache has it.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	if len(c.buckets) > 0 {
		b := c.bucket(key)
		for i := range b {
			if e := b[i].Load(); e != nil && e.key == key {
				c.hits.increment()
				return e.value, true
			}
		}
	}
	c.misses.increment()
	return value, false
}

// Add adds the value for a key. Of two concurrent calls for one key, either may win.
func (c *Cache[K, V]) Add(key K, value V) {
	if len(c.buckets) == 0 {
		return
	}
	b, added := c.bucket(key), &entry[K, V]{key, value}
	for i := range b {
		switch e := b[i].Load(); {
		case e == nil && b[i].CompareAndSwap(nil, added):
			c.entries.increment()
			return
		case e != nil && e.key == key:
			b[i].Store(added)
			return
		}
	}
	b[c.victim.Add(1)%ways].Store(added)
	c.evictions.increment()
}

// Stats are the statistics of a cache since its creation.
type Stats struct {
	// Hits and Misses are the calls of Get with and without a result.
	Hits, Misses uint64
	// Evictions are entries replaced by entries of other keys.
	Evictions uint64
	// Entries is the number of entries.
	Entries uint64
}

// Add adds the statistics of another cache.
func (s *Stats) Add(other Stats) {
	s.Hits += other.Hits
	s.Misses += other.Misses
	s.Evictions += other.Evictions
	s.Entries += other.Entries
}

// Stats returns the statistics so far. During concurrent use, they are no consistent snapshot.
func (c *Cache[K, V]) Stats() Stats {
	return Stats{Hits: c.hits.sum(), Misses: c.misses.sum(), Evictions: c.evictions.sum(), Entries: c.entries.sum()}
}
