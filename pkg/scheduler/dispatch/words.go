// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
)

// Words returns the words that the plugins have for their devices. They are not to be changed.
func (s *Set) Words() devicescheduler.Words { return s.words }

// learn adds the words of one plugin to those of the plugins before it.
func learn(known *devicescheduler.Words, more devicescheduler.Words) {
	for level, noun := range more.Levels {
		if _, ok := known.Levels[level]; !ok {
			known.Levels[level] = noun
		}
	}
	for resource, unit := range more.Units {
		if _, ok := known.Units[resource]; !ok {
			known.Units[resource] = unit
		}
	}
}
