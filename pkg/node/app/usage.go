// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"

	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/usage"
)

// newUsage returns what reads the use of the node's devices, with its metrics, or nil where it is
// off. kubecri is in the host's PID namespace, so its /proc has the processes that drivers report.
func (n *node) newUsage(runtime grants.Runtime) *usage.Reader {
	if n.options.DeviceUsageInterval == 0 {
		return nil
	}
	reader := usage.New(usage.Options{
		Plugins: n.plugins, Grants: n.record, Runtime: runtime, Proc: os.DirFS("/proc"), SinceBoot: usage.SinceBoot,
		Clock: clock.RealClock{}, Interval: n.options.DeviceUsageInterval,
	})
	n.measures.registry.CustomMustRegister(newUsageMetrics(reader, n.devices, maxDeviceSeries))
	return reader
}
