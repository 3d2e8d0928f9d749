// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"sync"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// observer is a plugin that keeps counters of its own, and the pods that it was told of.
type observer struct {
	devicescheduler.PodObserver

	mu   sync.Mutex
	told map[string]string // node names by pod UID
}

// Observes reports whether any plugin wants to be told of pods.
func (s *Set) Observes() bool {
	for _, plugin := range s.plugins {
		if plugin.observer != nil {
			return true
		}
	}
	return false
}

// PodHolds tells the plugins that keep counters of their own that the pod's allocation is final. Each is told once by
// UID; one that fails is told again the next time.
func (s *Set) PodHolds(ctx context.Context, nodeName, uid string, allocation *types.PodInfo) {
	for _, plugin := range s.plugins {
		if plugin.observer != nil {
			plugin.tell(ctx, uid, nodeName, allocation)
		}
	}
}

// PodGone tells those plugins that the pod no longer holds anything.
func (s *Set) PodGone(ctx context.Context, uid string) {
	for _, plugin := range s.plugins {
		if plugin.observer != nil {
			plugin.tellGone(ctx, uid)
		}
	}
}

func (c *contained) tell(ctx context.Context, uid, nodeName string, allocation *types.PodInfo) {
	c.observer.mu.Lock()
	defer c.observer.mu.Unlock()
	if _, told := c.observer.told[uid]; told {
		return
	}
	given := allocation.Clone()
	_, err := call(ctx, c, "PodHolds", func() (struct{}, error) {
		c.observer.PodHolds(nodeName, uid, given)
		return struct{}{}, nil
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Device scheduler was not told of a pod", "podUID", uid, "node", klog.KRef("", nodeName))
		return
	}
	c.observer.told[uid] = nodeName
}

func (c *contained) tellGone(ctx context.Context, uid string) {
	c.observer.mu.Lock()
	defer c.observer.mu.Unlock()
	nodeName, told := c.observer.told[uid]
	if !told {
		return
	}
	delete(c.observer.told, uid)
	_, err := call(ctx, c, "PodGone", func() (struct{}, error) {
		c.observer.PodGone(nodeName, uid)
		return struct{}{}, nil
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Device scheduler was not told that a pod is gone", "podUID", uid, "node", klog.KRef("", nodeName))
	}
}
