// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"time"

	"k8s.io/component-base/metrics"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
)

// pluginCalls counts the calls into device schedulers. Those that were not made because the plugin is set aside count.
var pluginCalls = metrics.NewCounterVec(&metrics.CounterOpts{
	Namespace:      "kubedevice",
	Subsystem:      "scheduler",
	Name:           "plugin_calls_total",
	Help:           "Calls into device scheduler plugins, by plugin, method and outcome: answered, error (the plugin returned one), panic, timeout, set_aside (the plugin was not called).",
	StabilityLevel: metrics.ALPHA,
}, []string{"plugin", "method", "outcome"})

// pluginCallDuration has the calls that were made. The deadline of a call is one second.
var pluginCallDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
	Namespace:      "kubedevice",
	Subsystem:      "scheduler",
	Name:           "plugin_call_duration_seconds",
	Help:           "How long calls into device scheduler plugins took, by plugin and method, without the time for which they waited for their turn.",
	Buckets:        metrics.ExponentialBuckets(0.00001, 4, 9), // 10 µs to 0.66 s
	StabilityLevel: metrics.ALPHA,
}, []string{"plugin", "method"})

// pluginSetAside has one value for each device scheduler.
var pluginSetAside = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Namespace:      "kubedevice",
	Subsystem:      "scheduler",
	Name:           "plugin_set_aside",
	Help:           "1 from the moment that a device scheduler plugin is set aside until it answers again, else 0. No pod that asks for its devices is scheduled in that time, nor one that asks for others unless all plugins are specialists.",
	StabilityLevel: metrics.ALPHA,
}, []string{"plugin"})

// stepLimitHits counts answers of the group scheduler, also those that it remembers.
var stepLimitHits = metrics.NewCounter(&metrics.CounterOpts{
	Namespace:      "kubedevice",
	Subsystem:      "scheduler",
	Name:           "step_limit_hits_total",
	Help:           "Answers for a pod on a node that were cut short by the step limit of the search for devices: the pod may have got other devices than the best, or been refused although it fits.",
	StabilityLevel: metrics.ALPHA,
})

// recorder makes metrics of what the device schedulers do.
type recorder struct{}

var _ dispatch.Recorder = recorder{}

// newRecorder returns the recorder, with the metrics registered: what is set before is lost.
func newRecorder() recorder {
	registerMetrics()
	return recorder{}
}

func (recorder) Called(plugin, method string, outcome dispatch.Outcome, took time.Duration) {
	pluginCalls.WithLabelValues(plugin, method, string(outcome)).Inc()
	if outcome != dispatch.SetAside {
		pluginCallDuration.WithLabelValues(plugin, method).Observe(took.Seconds())
	}
}

func (recorder) SetAside(plugin string, aside bool) {
	value := 0.0
	if aside {
		value = 1
	}
	pluginSetAside.WithLabelValues(plugin).Set(value)
}

func (recorder) StepLimitHit() { stepLimitHits.Inc() }
