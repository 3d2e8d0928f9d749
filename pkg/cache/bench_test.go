// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"testing"

	"k8s.io/utils/lru"
)

// schedulerKey is a key of the size of the scheduler's keys.
type schedulerKey struct {
	revision      uint64
	request, node [32]byte
}

// BenchmarkGet compares Get with that of a library, by one CPU and by all at once.
func BenchmarkGet(b *testing.B) {
	const entries = 1 << 12
	ours, library, questions := New[schedulerKey, *int](entries), lru.New(entries), make([]schedulerKey, entries/4)
	for i := range questions {
		q := &questions[i]
		q.request[0], q.node[0], q.node[1] = byte(i%8), byte(i), byte(i>>8)
		ours.Add(*q, new(int))
		library.Add(*q, new(int))
	}
	for _, bench := range []struct {
		name string
		get  func(schedulerKey)
	}{
		{"ours", func(q schedulerKey) { ours.Get(q) }},
		{"library", func(q schedulerKey) { library.Get(q) }},
	} {
		b.Run(bench.name+"/alone", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				bench.get(questions[i%len(questions)])
			}
		})
		b.Run(bench.name+"/parallel", func(b *testing.B) {
			b.SetParallelism(8) // the scheduler filters nodes in 16 goroutines
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					bench.get(questions[i%len(questions)])
				}
			})
		})
	}
}
