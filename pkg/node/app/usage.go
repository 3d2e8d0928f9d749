// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"os"
	"sync"

	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/usage"
)

// deviceUsage reads the use of the node's devices, and chooses what of it the node publishes.
type deviceUsage struct {
	reader    *usage.Reader
	publisher *usage.Publisher
}

// newUsage returns what reads the use of the node's devices, with its metrics, or nil where it is
// off. kubecri is in the host's PID namespace, so its /proc has the processes that drivers report.
func (n *node) newUsage(runtime grants.Runtime) *deviceUsage {
	if n.options.DeviceUsageInterval == 0 {
		return nil
	}
	reader := usage.New(usage.Options{
		Plugins: n.plugins, Grants: n.record, Runtime: runtime, Proc: os.DirFS("/proc"), SinceBoot: usage.SinceBoot,
		Clock: clock.RealClock{}, Interval: n.options.DeviceUsageInterval,
	})
	n.measures.registry.CustomMustRegister(newUsageMetrics(reader, n.devices, maxDeviceSeries))
	return &deviceUsage{reader, usage.NewPublisher(reader)}
}

// Run reads and publishes until ctx is done.
func (u *deviceUsage) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { u.reader.Run(ctx) })
	running.Go(func() { u.publisher.Run(ctx) })
	running.Wait()
}
