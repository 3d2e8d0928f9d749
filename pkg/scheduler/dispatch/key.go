// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"crypto/sha256"
	"encoding/hex"
)

// RequestKey identifies what a pod requests: the answers for two pods of equal key are the same on any node, except from
// plugins that are neither Pure nor Translators. It covers
//
//   - the containers in the order of the spec, with the kind that says when each of them runs,
//   - what each of them requests in its spec and in the annotation, and its scorers,
//   - what the annotation requests for the pod as a whole,
//   - which counts are those of devices.
//
// It does not cover names and UIDs of pods. It is comparable, and depends on nothing that differs between processes.
type RequestKey [sha256.Size]byte

// String returns the key in hexadecimal digits.
func (k RequestKey) String() string { return hex.EncodeToString(k[:]) }

// Key returns the request's key. It is computed on the first call.
func (r *Request) Key() RequestKey {
	if known := r.key.Load(); known != nil {
		return *known
	}
	asked := r.asked().digest()
	c := content(asked[:])
	for _, name := range sortedNames(r.Counted) {
		c.str(name)
		c.num(int64(len(r.Counted[name])))
		for _, counted := range r.Counted[name] {
			c.str(string(counted))
		}
	}
	key := RequestKey(sha256.Sum256(c))
	r.key.Store(&key)
	return key
}
