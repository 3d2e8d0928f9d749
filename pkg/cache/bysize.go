// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cache

const (
	// shortBytes is the longest text that is short: that of an ordinary annotation.
	shortBytes = 4 << 10

	// longEntries are those for longer texts: of the longest annotations that are read, together 4
	// MiB of text.
	longEntries = 128
)

// BySize is a cache of what is read of texts that is bounded in bytes as well: long texts have a
// smaller cache of their own, so that they push out neither memory nor the short ones. What is
// decoded takes several times as much memory as the text. It is safe for concurrent use.
type BySize[K comparable, V any] struct {
	short, long *Cache[K, V]
}

// NewBySize returns a cache with this many entries for short texts.
func NewBySize[K comparable, V any](short int) *BySize[K, V] {
	return &BySize[K, V]{New[K, V](short), New[K, V](longEntries)}
}

// For returns the cache for a text of that many bytes.
func (b *BySize[K, V]) For(size int) *Cache[K, V] {
	if size > shortBytes {
		return b.long
	}
	return b.short
}

// Stats returns what both caches have done so far.
func (b *BySize[K, V]) Stats() Stats {
	stats := b.short.Stats()
	stats.Add(b.long.Stats())
	return stats
}
