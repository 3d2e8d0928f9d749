// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"os"
	"strings"
	"testing"

	"k8s.io/component-base/metrics/testutil"

	"github.com/kubedevice/kubedevice/pkg/plugincall"
	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
)

func TestOperatorsCanReadWhatEachMetricAndOutcomeMeans(t *testing.T) {
	text, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, metric := range All() {
		names = append(names, metric.FQName())
	}
	for _, outcome := range []dispatch.Outcome{
		plugincall.Answered, plugincall.Errored, plugincall.Panicked, plugincall.TimedOut, plugincall.NotReturned,
		dispatch.InBackOff, dispatch.Quarantined,
	} {
		names = append(names, string(outcome))
	}
	for _, blamed := range []dispatch.Blamed{
		dispatch.BlamedRequest, dispatch.BlamedNode, dispatch.BlamedHolder, dispatch.BlamedPlugin,
		dispatch.BlamedNothing,
	} {
		names = append(names, string(blamed))
	}
	for _, name := range names {
		if !strings.Contains(string(text), "\n| `"+name+"` |") {
			t.Errorf("docs/operations.md has no row for %s", name)
		}
	}
}

func TestMetricsCountStepLimitHitsAndPluginsThatComeBack(t *testing.T) {
	recorder := NewRecorder()
	before, err := testutil.GetCounterMetricValue(StepLimitHits)
	if err != nil {
		t.Fatal(err)
	}
	recorder.StepLimitHit()
	if after, err := testutil.GetCounterMetricValue(StepLimitHits); err != nil || after != before+1 {
		t.Errorf("step limit hits %v after %v, error %v", after, before, err)
	}
	for _, quarantined := range []bool{true, false} {
		recorder.Quarantined("p", quarantined)
		want := map[bool]float64{true: 1, false: 0}[quarantined]
		if got, err := testutil.GetGaugeMetricValue(PluginSetAside.WithLabelValues("p")); err != nil || got != want {
			t.Errorf("quarantined %v: gauge %v, error %v, want %v", quarantined, got, err, want)
		}
	}
}
