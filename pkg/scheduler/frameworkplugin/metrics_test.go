// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"fmt"
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
	metrics.PluginFailures.Reset()
	metrics.PluginSetAside.Reset()
	metrics.PluginCallsOverdue.Reset()
	f := newFixture(t, []*v1.Node{newNode("n", "GPU-0")})
	f.fit(newPod("fits", 1), "n")
	f.schedulers.panics = true
	for range 2 {
		f.fit(newPod("p", 2), "n") // not what is remembered
	}
	for _, metric := range []struct{ name, kind, help, values string }{
		{"plugin_calls_overdue", "gauge", metrics.PluginCallsOverdue.Help, `{plugin="gpus"} 0`},
		{"plugin_calls_total", "counter", metrics.PluginCalls.Help,
			`{method="AddNode",outcome="answered",plugin="gpus"} 1
{method="PodFitsDevice",outcome="answered",plugin="gpus"} 1
{method="PodFitsDevice",outcome="panic",plugin="gpus"} 1
{method="PodFitsDevice",outcome="set_aside",plugin="gpus"} 1
{method="Probe",outcome="panic",plugin="gpus"} 1`},
		{"plugin_failures_total", "counter", metrics.PluginFailures.Help, `{blamed="plugin",plugin="gpus"} 1`},
		{"plugin_set_aside", "gauge", metrics.PluginSetAside.Help, `{plugin="gpus"} 1`},
	} {
		name := "kubedevice_scheduler_" + metric.name
		help := strings.TrimPrefix(metric.help, "[ALPHA] ") // registration adds it
		want := fmt.Sprintf("# HELP %s [ALPHA] %s\n# TYPE %s %s\n", name, help, name, metric.kind)
		for value := range strings.SplitSeq(metric.values, "\n") {
			want += name + value + "\n"
		}
		if err := testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(want), name); err != nil {
			t.Error(err)
		}
	}
	testutil.AssertHistogramTotalCount(t, "kubedevice_scheduler_plugin_call_duration_seconds",
		map[string]string{"method": "PodFitsDevice"}, 2)
}
