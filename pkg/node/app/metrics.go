// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
	"github.com/kubedevice/kubedevice/pkg/node/gate"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
)

// measures are what /metrics shows. The names are public.
type measures struct {
	registry   metrics.KubeRegistry
	calls      *metrics.CounterVec
	callTime   *metrics.HistogramVec
	containers *metrics.CounterVec
	plugins    *metrics.CounterVec
	pluginTime *metrics.HistogramVec
	patches    *metrics.CounterVec
}

// newMeasures registers all metrics, those of the record included.
func newMeasures(record *grants.Record) *measures {
	const name = "kubecri"
	counter := func(of, help string, labels ...string) *metrics.CounterVec {
		return metrics.NewCounterVec(&metrics.CounterOpts{Subsystem: name, Name: of, Help: help, StabilityLevel: metrics.ALPHA}, labels)
	}
	seconds := func(of, help string, labels ...string) *metrics.HistogramVec {
		return metrics.NewHistogramVec(&metrics.HistogramOpts{
			Subsystem: name, Name: of, Help: help, StabilityLevel: metrics.ALPHA, Buckets: metrics.ExponentialBuckets(0.0005, 4, 9),
		}, labels)
	}
	m := &measures{
		registry:   metrics.NewKubeRegistry(),
		calls:      counter("cri_calls_total", "Calls to the container runtime, by method and status code.", "method", "code"),
		callTime:   seconds("cri_call_duration_seconds", "How long calls to the container runtime took, with the runtime's own time, by method.", "method"),
		containers: counter("containers_total", "Containers that were created or refused, by outcome: passed, injected or refused.", "outcome"),
		plugins:    counter("plugin_calls_total", "Calls into device plugins, by plugin, call and outcome: ok or error.", "plugin", "call", "outcome"),
		pluginTime: seconds("plugin_call_duration_seconds", "How long calls into device plugins took, by plugin and call.", "plugin", "call"),
		patches:    counter("node_patches_total", "Patches of the node's devices in the API server, by outcome: ok or error.", "outcome"),
	}
	gauge := func(of, help string, value func() float64) metrics.GaugeFunc {
		return metrics.NewGaugeFunc(&metrics.GaugeOpts{Subsystem: name, Name: of, Help: help, StabilityLevel: metrics.ALPHA}, value)
	}
	m.registry.MustRegister(m.calls, m.callTime, m.containers, m.plugins, m.pluginTime, m.patches)
	m.registry.RawMustRegister(
		gauge("grants", "Pods that hold devices of this node.", func() float64 { return float64(len(record.List())) }),
		gauge("grants_damaged", "1 if the record of grants was damaged when kubecri started, and was made anew from the runtime.", func() float64 {
			if record.WasDamaged() {
				return 1
			}
			return 0
		}),
	)
	return m
}

func (m *measures) handler() http.Handler {
	return metrics.HandlerFor(m.registry, metrics.HandlerOpts{})
}

func (m *measures) observeCall(call criproxy.Call) {
	m.calls.WithLabelValues(call.Method, call.Code.String()).Inc()
	m.callTime.WithLabelValues(call.Method).Observe(call.Took.Seconds())
}

func (m *measures) observeContainer(outcome gate.Outcome) {
	m.containers.WithLabelValues(string(outcome)).Inc()
}

func (m *measures) observePlugin(plugin, call string, took time.Duration, err error) {
	m.plugins.WithLabelValues(plugin, call, outcomeOf(err)).Inc()
	m.pluginTime.WithLabelValues(plugin, call).Observe(took.Seconds())
}

func (m *measures) observePatch(err error) {
	m.patches.WithLabelValues(outcomeOf(err)).Inc()
}

func outcomeOf(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}
