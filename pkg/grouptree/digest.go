// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
)

// Digest identifies content: values of equal digest give equal placements.
type Digest [sha256.Size]byte

// encoder writes numbers and strings so that different sequences of them give different bytes.
type encoder []byte

func (e *encoder) num(values ...int64) {
	for _, value := range values {
		*e = binary.AppendVarint(*e, value)
	}
}

func (e *encoder) str(values ...string) {
	for _, value := range values {
		*e = binary.AppendVarint(*e, int64(len(value)))
		*e = append(*e, value...)
	}
}

// classify sets the class of each instance. Instances of one class have the same levels and the
// same resources with the same allocatable quantities and modes, in the same positions. It returns
// the digest of the whole tree.
func (l *layout) classify() Digest {
	content := encoder{}
	for _, names := range []map[string]int32{l.signatures, l.types} {
		keys := slices.Sorted(maps.Keys(names))
		content.num(int64(len(keys)))
		content.str(keys...)
	}
	classes := map[string]int32{}
	for x := len(l.instances) - 1; x >= 0; x-- { // children have larger numbers than their parents
		inst := &l.instances[x]
		var key encoder
		key.num(int64(inst.signature), int64(inst.hi-inst.lo), int64(inst.ownHi-inst.ownLo))
		for _, own := range l.own[inst.ownLo:inst.ownHi] {
			key.num(int64(own.typ), int64(own.resource-inst.lo),
				l.allocatable[own.resource], int64(l.mode[own.resource]))
		}
		for _, edge := range l.edges[inst.edgeLo:inst.edgeHi] {
			key.num(int64(edge.signature), int64(edge.last-edge.first))
			for child := edge.first; child < edge.last; child++ {
				key.num(int64(l.instances[child].class), int64(l.instances[child].lo-inst.lo))
			}
		}
		class, known := classes[string(key)]
		if !known {
			class = int32(len(classes))
			classes[string(key)] = class
			content.str(string(key))
		}
		inst.class = class
	}
	content.num(int64(l.instances[0].class))
	return sha256.Sum256(content)
}
