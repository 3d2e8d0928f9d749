// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// forgedAllocations counts scheduling attempts of unbound pods whose annotation carries fields that only the scheduler
// may write. They do no harm, since binding overwrites them, but the admission policies would have refused them.
var forgedAllocations = metrics.NewCounter(&metrics.CounterOpts{
	Namespace:      "kubedevice",
	Subsystem:      "scheduler",
	Name:           "forged_allocations_total",
	Help:           "Scheduling attempts of pods whose device annotation carries an allocation that the scheduler did not write. More than 0 says that the admission policies are not installed.",
	StabilityLevel: metrics.ALPHA,
})

// registerMetrics makes the metrics part of the scheduler's /metrics. It may be called again.
func registerMetrics() {
	legacyregistry.MustRegister(forgedAllocations)
}
