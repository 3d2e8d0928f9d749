// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

// Era reports whether verdicts may be cached, and until when: of two verdicts for requests of equal key on one Node, in
// the same era, the second equals the first. There is no era while a plugin is set aside, since its answers may change at
// any time, nor where the set is not Predictable.
func (s *Set) Era() (era uint64, ok bool) {
	for _, plugin := range s.plugins {
		if plugin.recall == nil || plugin.unavailable.Load() {
			return 0, false
		}
		era += plugin.revision.Load() // revisions only grow, so an equal sum means equal revisions
		if plugin.chooser != nil {
			era += plugin.chooser.Revision()
		}
	}
	return era, true
}
