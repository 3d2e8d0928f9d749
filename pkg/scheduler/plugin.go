// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduler makes the Kubernetes scheduler choose exact devices. It is upstream's command with one more framework
// plugin; each extension point is a file of this package.
//
// The plugin remembers nothing that it can derive: who holds what on a node is computed from the pods of the NodeInfo
// that the framework hands to each call. The exception are allocations that are made but not yet seen on a bound pod.
// Package nodestate has both; package dispatch calls the device schedulers.
package scheduler

import (
	"context"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/kubedevice/kubedevice/pkg/scheduler/devicepage"
	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
)

// Name is the plugin's name in scheduler configurations, logs and metrics.
const Name = "KubeDevice"

// Plugin is the framework plugin of one profile. What it knows of nodes is shared by all profiles of the process.
type Plugin struct {
	handle fwk.Handle
	*shared
	latest atomic.Pointer[latest]
}

var (
	_ fwk.PreFilterPlugin   = (*Plugin)(nil)
	_ fwk.FilterPlugin      = (*Plugin)(nil)
	_ fwk.PostFilterPlugin  = (*Plugin)(nil)
	_ fwk.PreScorePlugin    = (*Plugin)(nil)
	_ fwk.ScorePlugin       = (*Plugin)(nil)
	_ fwk.ReservePlugin     = (*Plugin)(nil)
	_ fwk.BindPlugin        = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)
	_ fwk.SignPlugin        = (*Plugin)(nil)
)

// NewFactory returns the factory of the plugin, for one scheduler. The framework calls it once per profile; all of them
// share schedulers and what is known of nodes.
func NewFactory(schedulers *dispatch.Set) frameworkruntime.PluginFactory {
	return newFactory(schedulers, nil)
}

// newFactory is NewFactory with a server for the page of devices, which may be nil.
func newFactory(schedulers *dispatch.Set, server *pageServer) frameworkruntime.PluginFactory {
	var once sync.Once
	var common *shared
	var err error
	return func(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		once.Do(func() {
			if common, err = newShared(ctx, schedulers, handle); err == nil && server != nil {
				err = server.start(common.background, devicepage.New(devices{common}))
			}
		})
		if err != nil {
			return nil, err
		}
		return &Plugin{handle: handle, shared: common}, nil
	}
}

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// Close ends what runs in the background and waits for it. The framework calls it when the scheduler has stopped.
func (p *Plugin) Close() error {
	p.background.close()
	return nil
}
