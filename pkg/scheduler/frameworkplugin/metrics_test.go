// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
)

func TestMetricsReportTheCallsOfADeviceScheduler(t *testing.T) {
	metrics.Register()
	metrics.PluginCalls.Reset()
	metrics.PluginCallDuration.Reset()
	metrics.PluginSetAside.Reset()
	f := newFixture(t, []*v1.Node{newNode("n", "GPU-0")})
	f.fit(newPod("fits", 1), "n")
	f.schedulers.panics = true
	for range 4 {
		f.fit(newPod("p", 2), "n") // not what is remembered
	}
	want := `
# HELP kubedevice_scheduler_plugin_calls_total [ALPHA] Calls into device scheduler plugins, by plugin, method and outcome: answered, error (the plugin returned one), panic, timeout, set_aside (the plugin was not called).
# TYPE kubedevice_scheduler_plugin_calls_total counter
kubedevice_scheduler_plugin_calls_total{method="AddNode",outcome="answered",plugin="gpus"} 1
kubedevice_scheduler_plugin_calls_total{method="PodFitsDevice",outcome="answered",plugin="gpus"} 1
kubedevice_scheduler_plugin_calls_total{method="PodFitsDevice",outcome="panic",plugin="gpus"} 3
kubedevice_scheduler_plugin_calls_total{method="PodFitsDevice",outcome="set_aside",plugin="gpus"} 1
# HELP kubedevice_scheduler_plugin_set_aside [ALPHA] 1 from the moment that a device scheduler plugin is set aside until it answers again, else 0. No pod that asks for its devices is scheduled in that time, nor one that asks for others unless all plugins are specialists.
# TYPE kubedevice_scheduler_plugin_set_aside gauge
kubedevice_scheduler_plugin_set_aside{plugin="gpus"} 1
`
	if err := testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(want),
		"kubedevice_scheduler_plugin_calls_total", "kubedevice_scheduler_plugin_set_aside"); err != nil {
		t.Error(err)
	}
	testutil.AssertHistogramTotalCount(t, "kubedevice_scheduler_plugin_call_duration_seconds", map[string]string{"method": "PodFitsDevice"}, 4)
}
