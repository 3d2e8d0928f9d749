// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// remainder returns what is left to do of a request that all plugins have translated.
func (s *Set) remainder(t *translation) *remainder {
	t.once.Do(func() {
		known, ok := s.knownRemainder(t)
		if !ok {
			known = &remainder{unserved: s.unserved(t)}
			known.noDevices = known.unserved == "" && !t.serves()
			if known.unserved == "" && !known.noDevices && s.usesGroups(t.Pod) {
				known.request, known.err = grouptree.CompileRequest(t.Pod, t.Containers)
			}
			if !t.alone {
				s.remainders.Add(t.Key(), known)
			}
		}
		t.remainder.Store(known)
	})
	return t.remainder.Load()
}

// knownRemainder returns what is left of a translation, if that is known.
func (s *Set) knownRemainder(t *translation) (known *remainder, ok bool) {
	if known = t.remainder.Load(); known != nil || t.alone {
		return known, known != nil
	}
	return s.remainders.Get(t.Key())
}

// usesGroups reports whether the group scheduler has to do with a translated pod.
func (s *Set) usesGroups(pod *types.PodInfo) bool {
	if s.groups {
		return true
	}
	for _, info := range pod.Containers() {
		for request := range info.DevRequests {
			if s.isAllocated(request) {
				return true
			}
		}
	}
	return false
}
