// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"sync"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Observer reports to a plugin that keeps counters of its own which pods hold devices: each pod
// once. It is safe for concurrent use.
type Observer struct {
	plugin *Plugin
	pods   devicescheduler.PodObserver

	mu       sync.Mutex
	reported map[string]string // node names by pod UID
}

// NewObserver returns the observer of a plugin.
func NewObserver(plugin *Plugin, pods devicescheduler.PodObserver) *Observer {
	return &Observer{plugin: plugin, pods: pods, reported: map[string]string{}}
}

// PodHolds reports that the pod's allocation is final, unless that was reported for its UID. A
// report that fails is made again the next time.
func (o *Observer) PodHolds(ctx context.Context, nodeName, uid string, allocation *types.PodInfo) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, reported := o.reported[uid]; reported {
		return
	}
	copied := allocation.Clone()
	if o.report(ctx, "PodHolds", nodeName, uid, func() { o.pods.PodHolds(nodeName, uid, copied) }) {
		o.reported[uid] = nodeName
	}
}

// PodGone reports that a pod that was reported no longer holds anything.
func (o *Observer) PodGone(ctx context.Context, uid string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if nodeName, reported := o.reported[uid]; reported {
		delete(o.reported, uid)
		o.report(ctx, "PodGone", nodeName, uid, func() { o.pods.PodGone(nodeName, uid) })
	}
}

// report calls one of the observer's methods, and reports whether it returned.
func (o *Observer) report(ctx context.Context, method, nodeName, uid string, fn func()) bool {
	call := &Call{Method: method, Subject: Subject{Node: nodeName}}
	_, err := Do(ctx, o.plugin, call, func() (struct{}, error) {
		fn()
		return struct{}{}, nil
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "A device scheduler rejected the report of a pod", logkey.Plugin,
			o.plugin.Name, logkey.Method, method, logkey.PodUID, uid, logkey.Node, klog.KRef("", nodeName))
	}
	return err == nil
}
