// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"context"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Observes reports whether any plugin observes pods.
func (s *Set) Observes() bool {
	for _, plugin := range s.plugins {
		if plugin.observer != nil {
			return true
		}
	}
	return false
}

// PodHolds reports to the plugins that observe pods that the pod's allocation is final. Each gets
// one report for a UID; one that fails gets another the next time.
func (s *Set) PodHolds(ctx context.Context, nodeName, uid string, allocation *types.PodInfo) {
	for _, plugin := range s.plugins {
		if plugin.observer != nil {
			plugin.observer.PodHolds(ctx, nodeName, uid, allocation)
		}
	}
}

// PodGone reports to those plugins that the pod no longer holds anything.
func (s *Set) PodGone(ctx context.Context, uid string) {
	for _, plugin := range s.plugins {
		if plugin.observer != nil {
			plugin.observer.PodGone(ctx, uid)
		}
	}
}
