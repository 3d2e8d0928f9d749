// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sync/atomic"
)

// memoWays is how many entries share one bucket of a memo.
const memoWays = 4

// Memo remembers placements by request, shape of the tree and what is used. It is bounded and safe for concurrent
// use; nobody waits for anybody. As a placement depends on nothing else, what is forgotten costs time only.
type Memo struct {
	slots   []atomic.Pointer[memory]
	buckets uint64 // a power of two
	victim  atomic.Uint64
	hits    atomic.Uint64
	misses  atomic.Uint64
}

// memory is one remembered placement.
type memory struct {
	hash           uint64
	request, shape Digest
	limit          int
	used           []int64
	placement      *Placement
}

// NewMemo returns a memo of at least that many entries. Each takes the memory of a vector of used quantities and of a
// placement.
func NewMemo(entries int) *Memo {
	buckets := uint64(1)
	for buckets*memoWays < uint64(max(entries, 1)) {
		buckets *= 2
	}
	return &Memo{slots: make([]atomic.Pointer[memory], buckets*memoWays), buckets: buckets}
}

// Place answers from the memo, or places the request and remembers the placement.
func (m *Memo) Place(p *Placer, tree *DeviceTree, used []int64, req *Request) *Placement {
	hash := memoHash(p.limit, tree, used, req)
	if found := m.find(hash, p.limit, tree, used, req); found != nil {
		m.hits.Add(1)
		return found
	}
	m.misses.Add(1)
	placement := p.Place(tree, used, req)
	if !req.pinned { // what a pin means depends on the names of this node's devices
		m.remember(&memory{
			hash: hash, request: req.digest, shape: tree.shape, limit: p.limit, used: slices.Clone(used), placement: placement,
		})
	}
	return placement
}

// Stats returns how many answers came from the memo, and how many did not.
func (m *Memo) Stats() (hits, misses uint64) { return m.hits.Load(), m.misses.Load() }

// bucket returns the slots in which an entry of this hash may be.
func (m *Memo) bucket(hash uint64) []atomic.Pointer[memory] {
	at := hash & (m.buckets - 1) * memoWays
	return m.slots[at : at+memoWays]
}

// find returns the remembered placement, or nil.
func (m *Memo) find(hash uint64, limit int, tree *DeviceTree, used []int64, req *Request) *Placement {
	if req.pinned {
		return nil
	}
	bucket := m.bucket(hash)
	for i := range bucket {
		e := bucket[i].Load()
		if e != nil && e.hash == hash && e.limit == limit && e.request == req.digest && e.shape == tree.shape && slices.Equal(e.used, used) {
			return e.placement
		}
	}
	return nil
}

// remember stores an entry in a free slot of its bucket, or in place of another.
func (m *Memo) remember(e *memory) {
	bucket := m.bucket(e.hash)
	for i := range bucket {
		if bucket[i].CompareAndSwap(nil, e) {
			return
		}
	}
	bucket[m.victim.Add(1)%memoWays].Store(e)
}

// memoHash mixes all that a placement depends on, in four lanes that the processor works on side by side. It need not
// withstand an attacker: an entry is compared in full, and the digests in it are cryptographic.
func memoHash(limit int, tree *DeviceTree, used []int64, req *Request) uint64 {
	var lanes [4]uint64
	for i := range lanes {
		lanes[i] = binary.LittleEndian.Uint64(tree.shape[i*8:]) ^ bits.RotateLeft64(binary.LittleEndian.Uint64(req.digest[i*8:]), 32)
	}
	for len(used) >= 4 {
		lanes[0] = mix(lanes[0] ^ uint64(used[0]))
		lanes[1] = mix(lanes[1] ^ uint64(used[1]))
		lanes[2] = mix(lanes[2] ^ uint64(used[2]))
		lanes[3] = mix(lanes[3] ^ uint64(used[3]))
		used = used[4:]
	}
	for i, quantity := range used {
		lanes[i] = mix(lanes[i] ^ uint64(quantity))
	}
	return mix(mix(lanes[0]^uint64(limit)) ^ mix(lanes[1]) ^ bits.RotateLeft64(mix(lanes[2]), 21) ^ bits.RotateLeft64(mix(lanes[3]), 42))
}

// mix spreads the bits of x over all of the result.
func mix(x uint64) uint64 {
	hi, lo := bits.Mul64(x^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return hi ^ lo
}
