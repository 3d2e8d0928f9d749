// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"crypto/sha256"
)

// Era tells whether verdicts may be remembered: of two that were given for requests of equal digest on one Node, in the
// same era, the second is the first. There is none while a plugin is set aside, whose answers are its own to give, nor
// where the set is not Predictable.
func (s *Set) Era() (era uint64, ok bool) {
	for _, plugin := range s.plugins {
		if plugin.recall == nil || plugin.shunned.Load() {
			return 0, false
		}
		era += plugin.revision.Load() // which only grows, so the sum tells
	}
	return era, true
}

// Digest identifies what a pod asks for, and who has to do with that: see Era.
func (s *Set) Digest(request *Request) [sha256.Size]byte {
	asked := request.asked().digest()
	c := content(asked[:])
	for _, name := range sortedNames(request.Counted) {
		c.str(name)
		for _, counted := range request.Counted[name] {
			c.str(string(counted))
			var chosen int64
			if s.chooser != nil && s.chooser.chooser.Serves(counted) { // which comes and goes with the nodes that have it
				chosen = 1
			}
			c.num(chosen)
		}
		c.num(-1)
	}
	return sha256.Sum256(c)
}
