// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"crypto/sha256"
	"encoding/binary"
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
