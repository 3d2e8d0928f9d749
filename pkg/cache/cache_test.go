// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"math/rand/v2"
	"sync"
	"testing"
)

// A cache of any size returns the last added value for the key, or none.
func TestGetReturnsTheLastAddedValue(t *testing.T) {
	for _, entries := range []int{0, 1, 4, 5, 64, 1000} {
		c, added := New[int, int](entries), map[int]int{}
		random := rand.New(rand.NewPCG(1, uint64(entries)))
		var hits, misses uint64
		for range 20_000 {
			key := random.IntN(200)
			if random.IntN(3) == 0 {
				added[key] = random.Int()
				c.Add(key, added[key])
			}
			value, ok := c.Get(key)
			if ok && value != added[key] {
				t.Fatalf("%d entries: key %d has value %d, want %d", entries, key, value, added[key])
			}
			if ok {
				hits++
			} else {
				misses++
			}
		}
		stats := c.Stats()
		if stats.Hits != hits || stats.Misses != misses {
			t.Errorf("%d entries: %+v, want %d hits and %d misses", entries, stats, hits, misses)
		}
		if bound := uint64(max(2*entries, 4)); stats.Entries > bound || (entries == 0) != (hits == 0) {
			t.Errorf("%d entries: %+v", entries, stats)
		}
	}
}

func TestFullBucketEvicts(t *testing.T) {
	c := New[int, string](1) // one bucket
	for key := range ways {
		c.Add(key, "")
	}
	c.Add(0, "replaced")
	if stats := c.Stats(); stats.Entries != ways || stats.Evictions != 0 {
		t.Errorf("%+v, want %d entries and no evictions", stats, ways)
	}
	for key := range 100 {
		c.Add(ways+key, "")
		if _, ok := c.Get(ways + key); !ok {
			t.Errorf("key %d is not there after it was added", key)
		}
	}
	if stats := c.Stats(); stats.Entries != ways || stats.Evictions != 100 {
		t.Errorf("%+v, want %d entries and 100 evictions", stats, ways)
	}
}

func TestConcurrentUse(t *testing.T) {
	const workers, keys, rounds = 8, 100, 5000
	c := New[int, int](64)
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(2, uint64(worker)))
			for range rounds {
				key := random.IntN(keys)
				if value, ok := c.Get(key); ok && value != key*key {
					t.Errorf("key %d has value %d, want %d", key, value, key*key)
					return
				}
				c.Add(key, key*key)
			}
		})
	}
	group.Wait()
	if stats := c.Stats(); stats.Hits+stats.Misses != workers*rounds || stats.Entries > 64 {
		t.Errorf("%+v after %d calls of Get", stats, workers*rounds)
	}
}

func TestGetDoesNotAllocate(t *testing.T) {
	c := New[schedulerKey, *int](8)
	c.Add(schedulerKey{}, nil)
	if got := testing.AllocsPerRun(100, func() { c.Get(schedulerKey{}); c.Get(schedulerKey{revision: 1}) }); got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}
