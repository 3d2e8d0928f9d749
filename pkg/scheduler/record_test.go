// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
)

func TestMetricsTellWhatADeviceSchedulerDid(t *testing.T) {
	registerMetrics()
	pluginCalls.Reset()
	pluginCallDuration.Reset()
	pluginSetAside.Reset()
	r := newRig(t, []*v1.Node{newNode("n", "GPU-0")})
	r.fit(newPod("fits", 1), "n")
	r.schedulers.panics = true
	for range 4 {
		r.fit(newPod("p", 2), "n") // not what is remembered
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

func TestOperatorsCanReadWhatEachMetricAndOutcomeMeans(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, metric := range allMetrics {
		names = append(names, metric.FQName())
	}
	for _, outcome := range []dispatch.Outcome{dispatch.Answered, dispatch.Errored, dispatch.Panicked, dispatch.TimedOut, dispatch.SetAside} {
		names = append(names, string(outcome))
	}
	for _, name := range names {
		if !strings.Contains(string(text), "\n| `"+name+"` |") {
			t.Errorf("docs/operations.md has no row for %s", name)
		}
	}
}

func TestMetricsCountAnswersCutShortAndPluginsThatComeBack(t *testing.T) {
	var told dispatch.Recorder = newRecorder()
	before, err := testutil.GetCounterMetricValue(stepLimitHits)
	if err != nil {
		t.Fatal(err)
	}
	told.StepLimitHit()
	if after, err := testutil.GetCounterMetricValue(stepLimitHits); err != nil || after != before+1 {
		t.Errorf("step limit hits %v after %v, error %v", after, before, err)
	}
	for _, aside := range []bool{true, false} {
		told.SetAside("p", aside)
		want := map[bool]float64{true: 1, false: 0}[aside]
		if got, err := testutil.GetGaugeMetricValue(pluginSetAside.WithLabelValues("p")); err != nil || got != want {
			t.Errorf("set aside %v: gauge %v, error %v, want %v", aside, got, err, want)
		}
	}
}
