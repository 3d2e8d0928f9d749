// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"os"
	"sync"

	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/node/usage"
)

// deviceUsage reads the use of the node's devices, and chooses what of it the node publishes.
type deviceUsage struct {
	reader    *usage.Reader
	publisher *usage.Publisher
}

// newDeviceUsage returns what reads the use of the node's devices at an interval. kubecri is in the
// host's PID namespace, so its /proc has the processes that drivers report.
func newDeviceUsage(
	manager *plugins.Manager, checkpoint *grants.Checkpoint, runtime grants.Runtime, options *Options,
) *deviceUsage {
	reader := usage.New(usage.Options{
		Plugins: manager, Grants: checkpoint, Runtime: runtime, Proc: os.DirFS("/proc"), Clock: clock.RealClock{},
		Interval: options.DeviceUsageInterval, Contexts: options.ContextMemory,
	})
	return &deviceUsage{reader, usage.NewPublisher(reader)}
}

// Run reads and publishes until ctx is done.
func (u *deviceUsage) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { u.reader.Run(ctx) })
	running.Go(func() { u.publisher.Run(ctx) })
	running.Wait()
}
