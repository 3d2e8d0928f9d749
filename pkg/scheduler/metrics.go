// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// forgedAllocations counts pods whose annotation came with fields that only the scheduler may write, each time that one
// is given a node. They do no harm, since binding overwrites the fields, but the admission policies would have refused
// the pods.
var forgedAllocations = metrics.NewCounter(&metrics.CounterOpts{
	Namespace:      "kubedevice",
	Subsystem:      "scheduler",
	Name:           "forged_allocations_total",
	Help:           "Pods whose device annotation came with an allocation that the scheduler did not write. More than 0 says that the admission policies are not installed.",
	StabilityLevel: metrics.ALPHA,
})

// policiesMissing is the number of admission policies that were not installed when the scheduler looked last, or that it
// may not look for.
var policiesMissing = metrics.NewGauge(&metrics.GaugeOpts{
	Namespace:      "kubedevice",
	Subsystem:      "scheduler",
	Name:           "admission_policies_missing",
	Help:           "Admission policies that are not installed or not bound, or that the scheduler may not look for. Without them users can forge allocations and inventories.",
	StabilityLevel: metrics.ALPHA,
})

// allMetrics are those that we add to upstream's. docs/operations.md lists them.
var allMetrics = []metrics.Registerable{forgedAllocations, policiesMissing, pluginCalls, pluginCallDuration, pluginSetAside, stepLimitHits}

// registerMetrics makes the metrics part of the scheduler's /metrics, once.
var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(allMetrics...) })
