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
	metrics.PluginQuarantined.Reset()
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
{method="PodFitsDevice",outcome="quarantined",plugin="gpus"} 1
{method="Probe",outcome="panic",plugin="gpus"} 1`},
		{"plugin_failures_total", "counter", metrics.PluginFailures.Help, `{blamed="plugin",plugin="gpus"} 1`},
		{"plugin_quarantined", "gauge", metrics.PluginQuarantined.Help, `{plugin="gpus"} 1`},
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

func TestBoundPodsWithTheAllocationOfOthersAreCounted(t *testing.T) {
	metrics.Register()
	const node, other = "n", "other"
	for name, test := range map[string]struct {
		before, after *v1.Pod // before is nil for a pod that is new
		want          float64
	}{
		"its own": {after: assumed(annotated(newPod("p", 1), allocationOf("p", node, "GPU-0")), node)},
		"that of another node": {
			after: assumed(annotated(newPod("p", 1), allocationOf("p", other, "GPU-0")), node), want: 1,
		},
		"that of another pod": {
			after: assumed(annotated(newPod("p", 1), allocationOf("q", node, "GPU-0")), node), want: 1,
		},
		"none":                  {after: assumed(newPod("p", 0), node)},
		"a request":             {after: assumed(annotated(newPod("p", 0), `{"runningcontainer":{}}`), node)},
		"forged, and not bound": {after: annotated(newPod("p", 1), allocationOf("q", other, "GPU-0"))},
		"bound with that of another pod": {
			before: newPod("p", 1), after: assumed(annotated(newPod("p", 1), allocationOf("q", node, "GPU-0")), node),
			want: 1,
		},
		"counted before": {
			before: assumed(annotated(newPod("p", 1), allocationOf("q", node, "GPU-0")), node),
			after:  assumed(annotated(newPod("p", 1), allocationOf("q", node, "GPU-0")), node),
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, nil)
			handler := f.plugin.podHandler(t.Context())
			before, err := testutil.GetCounterMetricValue(metrics.ForgedAllocations)
			if err != nil {
				t.Fatal(err)
			}
			if test.before == nil {
				handler.OnAdd(test.after, false)
			} else {
				handler.OnUpdate(test.before, test.after)
			}
			after, err := testutil.GetCounterMetricValue(metrics.ForgedAllocations)
			if err != nil || after-before != test.want {
				t.Errorf("%v are counted, error %v, want %v", after-before, err, test.want)
			}
		})
	}
}
