// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics has the metrics that KubeDevice adds to upstream's scheduler. They are served on
// its /metrics; docs/operations.md lists them.
package metrics

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
)

const (
	namespace = "kubedevice"
	subsystem = "scheduler"
)

// ForgedAllocations counts pods whose annotation came with fields that only the scheduler may
// write, each time that one is given a node. They do no harm, since binding overwrites the fields,
// but the admission policies would have refused the pods.
var ForgedAllocations = metrics.NewCounter(&metrics.CounterOpts{
	Namespace: namespace,
	Subsystem: subsystem,
	Name:      "forged_allocations_total",
	Help: "Pods whose device annotation came with an allocation that the scheduler did not write. " +
		"More than 0 says that the admission policies are not installed.",
	StabilityLevel: metrics.ALPHA,
})

// PoliciesMissing is the number of admission policies that the scheduler did not find at its last
// check, or that it has no permission to look for.
var PoliciesMissing = metrics.NewGauge(&metrics.GaugeOpts{
	Namespace: namespace,
	Subsystem: subsystem,
	Name:      "admission_policies_missing",
	Help: "Admission policies that are not installed or not bound, or that the scheduler may not look for. " +
		"Without them users can forge allocations and inventories.",
	StabilityLevel: metrics.ALPHA,
})

// PluginCalls counts the calls into device schedulers. Calls that were not made because the plugin
// is set aside count.
var PluginCalls = metrics.NewCounterVec(&metrics.CounterOpts{
	Namespace: namespace,
	Subsystem: subsystem,
	Name:      "plugin_calls_total",
	Help: "Calls into device scheduler plugins, by plugin, method and outcome: answered, error (the plugin returned one), " +
		"panic, timeout, set_aside (the plugin was not called).",
	StabilityLevel: metrics.ALPHA,
}, []string{"plugin", "method", "outcome"})

// PluginCallDuration has the calls that were made. The deadline of a call is one second.
var PluginCallDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
	Namespace: namespace,
	Subsystem: subsystem,
	Name:      "plugin_call_duration_seconds",
	Help: "How long calls into device scheduler plugins took, by plugin and method, without the time for which they " +
		"waited for their turn.",
	Buckets:        metrics.ExponentialBuckets(0.00001, 4, 9), // 10 µs to 0.66 s
	StabilityLevel: metrics.ALPHA,
}, []string{"plugin", "method"})

// PluginSetAside has one value for each device scheduler.
var PluginSetAside = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Namespace: namespace,
	Subsystem: subsystem,
	Name:      "plugin_set_aside",
	Help: "1 from the moment that a device scheduler plugin is set aside until it answers again, else 0. No pod that asks " +
		"for its devices is scheduled in that time, nor one that asks for others unless all plugins are specialists.",
	StabilityLevel: metrics.ALPHA,
}, []string{"plugin"})

// StepLimitHits counts answers of the group scheduler that its step limit cut short, cached ones
// included.
var StepLimitHits = metrics.NewCounter(&metrics.CounterOpts{
	Namespace: namespace,
	Subsystem: subsystem,
	Name:      "step_limit_hits_total",
	Help: "Answers for a pod on a node that were cut short by the step limit of the search for devices: the pod may have " +
		"got other devices than the best, or been refused although it fits.",
	StabilityLevel: metrics.ALPHA,
})

// All returns all metrics of this package.
func All() []metrics.Registerable {
	return []metrics.Registerable{
		ForgedAllocations, PoliciesMissing, PluginCalls, PluginCallDuration, PluginSetAside, StepLimitHits,
	}
}

// Register adds the metrics to the scheduler's registry, once. Values that were set before are
// lost.
var Register = sync.OnceFunc(func() { legacyregistry.MustRegister(All()...) })

// recorder turns what the device schedulers do into metrics.
type recorder struct{}

var _ dispatch.Recorder = recorder{}

// NewRecorder registers the metrics and returns the recorder that sets those of device schedulers.
func NewRecorder() dispatch.Recorder {
	Register()
	return recorder{}
}

func (recorder) Called(plugin, method string, outcome dispatch.Outcome, took time.Duration) {
	PluginCalls.WithLabelValues(plugin, method, string(outcome)).Inc()
	if outcome != dispatch.SetAside {
		PluginCallDuration.WithLabelValues(plugin, method).Observe(took.Seconds())
	}
}

func (recorder) SetAside(plugin string, aside bool) {
	value := 0.0
	if aside {
		value = 1
	}
	PluginSetAside.WithLabelValues(plugin).Set(value)
}

func (recorder) StepLimitHit() { StepLimitHits.Inc() }
