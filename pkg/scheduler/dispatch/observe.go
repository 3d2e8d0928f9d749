// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"sync"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// observer is a plugin that keeps counters of its own, and the pods that were reported to it.
type observer struct {
	devicescheduler.PodObserver

	mu       sync.Mutex
	reported map[string]string // node names by pod UID
}

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
			plugin.podHolds(ctx, uid, nodeName, allocation)
		}
	}
}

// PodGone reports to those plugins that the pod no longer holds anything.
func (s *Set) PodGone(ctx context.Context, uid string) {
	for _, plugin := range s.plugins {
		if plugin.observer != nil {
			plugin.podGone(ctx, uid)
		}
	}
}

func (c *contained) podHolds(ctx context.Context, uid, nodeName string, allocation *types.PodInfo) {
	c.observer.mu.Lock()
	defer c.observer.mu.Unlock()
	if _, reported := c.observer.reported[uid]; reported {
		return
	}
	given := allocation.Clone()
	if c.report(ctx, "PodHolds", nodeName, uid, func() { c.observer.PodHolds(nodeName, uid, given) }) {
		c.observer.reported[uid] = nodeName
	}
}

func (c *contained) podGone(ctx context.Context, uid string) {
	c.observer.mu.Lock()
	defer c.observer.mu.Unlock()
	if nodeName, reported := c.observer.reported[uid]; reported {
		delete(c.observer.reported, uid)
		c.report(ctx, "PodGone", nodeName, uid, func() { c.observer.PodGone(nodeName, uid) })
	}
}

// report calls one of the observer's methods, and reports whether it returned.
func (c *contained) report(ctx context.Context, method, nodeName, uid string, fn func()) bool {
	_, err := do(ctx, c, &call{method: method, node: nodeName}, func() (struct{}, error) {
		fn()
		return struct{}{}, nil
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "A device scheduler did not take the report of a pod",
			logkey.Plugin, c.name, logkey.Method, method, logkey.PodUID, uid, logkey.Node, klog.KRef("", nodeName))
	}
	return err == nil
}
