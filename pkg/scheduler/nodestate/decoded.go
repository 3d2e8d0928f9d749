// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/cache"
	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// bySize is a cache of what annotations say that is bounded in bytes as well: long ones have a
// smaller one of their own, so that they push out neither memory nor the short ones.
type bySize[K comparable, V any] struct {
	short, long *cache.Cache[K, V]
}

const (
	// shortBytes is the longest annotation of an ordinary pod.
	shortBytes = 4 << 10

	// longEntries are those of each cache for longer ones: of the longest that are read, together
	// 4 MiB of text.
	longEntries = 128

	// What is decoded takes several times as much memory as the text. Pods of one template have
	// the same annotation.
	requestEntries    = 1 << 11
	annotationEntries = 1 << 8
	allocationEntries = 1 << 11
)

func newBySize[K comparable, V any](short int) bySize[K, V] {
	return bySize[K, V]{cache.New[K, V](short), cache.New[K, V](longEntries)}
}

// of returns the cache for an annotation of that many bytes.
func (b *bySize[K, V]) of(size int) *cache.Cache[K, V] {
	if size > shortBytes {
		return b.long
	}
	return b.short
}

func (b *bySize[K, V]) stats() cache.Stats {
	stats := b.short.Stats()
	stats.Add(b.long.Stats())
	return stats
}

// written is what an annotation says, or why it cannot be read.
type written struct {
	*sdk.PodInfo
	err error
}

// read reads the annotation of a pod that is not bound, which may be absent. What it returns must
// not be changed.
func (c *Cache) read(annotation string) (*sdk.PodInfo, error) {
	if annotation == "" {
		return &sdk.PodInfo{}, nil
	}
	of := c.annotations.of(len(annotation))
	if known, ok := of.Get(annotation); ok {
		return known.PodInfo, known.err
	}
	read := written{}
	read.PodInfo, read.err = deviceinfo.DecodePod(annotation)
	of.Add(annotation, read)
	return read.PodInfo, read.err
}

// allocationKey is all that the allocation of a bound pod depends on.
type allocationKey struct {
	uid      types.UID
	version  string
	revision uint64 // of the node's inventory, which says whose seals count
}

// knownAllocation is what a bound pod holds, see heldBy, if that needs no reading: it has no Holder
// for a pod that holds nothing.
func (c *Cache) knownAllocation(pod *v1.Pod, inv *inventory, last *state) (held holder, known bool) {
	annotation := pod.Annotations[deviceinfo.Annotation]
	unread := deviceinfo.MayAllocate(annotation) && (last == nil || last.present[pod.UID].annotation != annotation)
	if !unread && inv.verifier != nil {
		_, verified := c.seals.Get(sealedOf(inv.verifier, pod))
		unread = !verified
	}
	if unread {
		return c.allocations.of(len(annotation)).Get(allocationKey{pod.UID, pod.ResourceVersion, inv.revision})
	}
	held, _ = c.heldBy(pod, inv, last)
	return held, true
}

// readAllocation is heldBy, and makes what it returns known.
func (c *Cache) readAllocation(pod *v1.Pod, inv *inventory, last *state) holder {
	held, _ := c.heldBy(pod, inv, last)
	of := c.allocations.of(len(pod.Annotations[deviceinfo.Annotation]))
	of.Add(allocationKey{pod.UID, pod.ResourceVersion, inv.revision}, held)
	return held
}
