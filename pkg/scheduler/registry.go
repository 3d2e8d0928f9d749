// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/claims"
	"github.com/kubedevice/kubedevice/pkg/scheduler/config"
	"github.com/kubedevice/kubedevice/pkg/scheduler/frameworkplugin"
	"github.com/kubedevice/kubedevice/pkg/scheduler/readapi"
)

// NewRegistry returns a registry of the framework plugin, for programs that run upstream's
// scheduler without its command, such as upstream's benchmarks. It enables the plugin in every
// profile, as NewCommand does, with the default arguments where a configuration has none. The
// registry is for one scheduler. Call it once per process, and not together with NewCommand: it
// changes the process-wide defaults of scheduler configurations.
func NewRegistry(builtIn ...allocation.Named) frameworkruntime.Registry {
	enableByDefault(&config.Flags{})
	ledger := &madeLedger{}
	return frameworkruntime.Registry{
		frameworkplugin.Name: newFactory(builtIn, readapi.NewServer(), ledger),
		claims.Name:          newClaimsFactory(ledger),
	}
}
