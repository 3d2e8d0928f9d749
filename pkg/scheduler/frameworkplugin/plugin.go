// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package frameworkplugin is the scheduler framework plugin that makes kube-scheduler choose exact
// devices. Each extension point is a file.
//
// The plugin keeps nothing that it can derive: who holds what on a node is computed from the pods
// of the NodeInfo that the framework hands to each call. The exception are allocations that are
// made but not yet seen on a bound pod. Package nodestate has both; package allocation calls
// the device schedulers.
package frameworkplugin

import (
	"sync/atomic"

	fwk "k8s.io/kube-scheduler/framework"
)

// Name is the plugin's name in scheduler configurations, logs and metrics.
const Name = "KubeDevice"

// SchedulerName is a name for spec.schedulerName of pods that no other scheduler serves. Where
// upstream's scheduler may lead, a pod under this name waits meanwhile, instead of being bound
// without devices.
const SchedulerName = "kubedevice-scheduler"

// Plugin is the framework plugin of one profile.
type Plugin struct {
	*Shared
	handle fwk.Handle
	latest atomic.Pointer[latest]
}

var (
	_ fwk.PreFilterPlugin   = (*Plugin)(nil)
	_ fwk.FilterPlugin      = (*Plugin)(nil)
	_ fwk.PostFilterPlugin  = (*Plugin)(nil)
	_ fwk.PreScorePlugin    = (*Plugin)(nil)
	_ fwk.ScorePlugin       = (*Plugin)(nil)
	_ fwk.ReservePlugin     = (*Plugin)(nil)
	_ fwk.PermitPlugin      = (*Plugin)(nil)
	_ fwk.BindPlugin        = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)
	_ fwk.SignPlugin        = (*Plugin)(nil)
)

// New returns the plugin of the profile that has this handle.
func New(handle fwk.Handle, shared *Shared) *Plugin { return &Plugin{handle: handle, Shared: shared} }

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// Close ends what runs in the background and waits for it. The framework calls it when the
// scheduler has stopped.
func (p *Plugin) Close() error {
	p.Shared.Close()
	return nil
}
