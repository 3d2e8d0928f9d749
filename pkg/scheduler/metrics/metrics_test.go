// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	basemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/cache"
	"github.com/kubedevice/kubedevice/pkg/plugincall"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
)

func TestOperatorsCanReadWhatEachMetricAndOutcomeMeans(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, metric := range All() {
		names = append(names, metric.FQName())
	}
	names = append(names, "kubedevice_scheduler_cache_hits_total", "kubedevice_scheduler_cache_misses_total",
		"kubedevice_scheduler_cache_size", "kubedevice_scheduler_cache_evictions_total")
	for name := range allocation.New(klog.Background(), nil).CacheStats() {
		names = append(names, name)
	}
	names = append(names, "pod_requests", "pod_annotations")
	for _, outcome := range []pluginhost.Outcome{
		plugincall.Answered, plugincall.Errored, plugincall.Panicked, plugincall.TimedOut, plugincall.NotReturned,
		pluginhost.OutcomeBackOff, pluginhost.OutcomeQuarantined,
	} {
		names = append(names, string(outcome))
	}
	for _, blamed := range []pluginhost.Blamed{
		pluginhost.BlamedRequest, pluginhost.BlamedNode, pluginhost.BlamedHolder, pluginhost.BlamedPlugin,
		pluginhost.BlamedNothing,
	} {
		names = append(names, string(blamed))
	}
	for _, name := range names {
		if !strings.Contains(string(text), "\n| `"+name+"` |") {
			t.Errorf("docs/reference/metrics.md has no row for %s", name)
		}
	}
	row := regexp.MustCompile("(?m)^\\| `(kubedevice_scheduler_[a-z_]+)`")
	for _, documented := range row.FindAllStringSubmatch(string(text), -1) {
		if !slices.Contains(names, documented[1]) {
			t.Errorf("docs/reference/metrics.md has %s, and there is no such metric", documented[1])
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
		if got, err := testutil.GetGaugeMetricValue(PluginQuarantined.WithLabelValues("p")); err != nil || got != want {
			t.Errorf("quarantined %v: gauge %v, error %v, want %v", quarantined, got, err, want)
		}
	}
}

// answers is one cache with metrics.
type answers struct{ *cache.Cache[int, string] }

func (a answers) CacheStats() map[string]cache.Stats {
	return map[string]cache.Stats{"answers": a.Stats()}
}

func TestCachesAreReadWhenTheMetricsAre(t *testing.T) {
	c := cache.New[int, string](4)
	collector := &cacheCollector{sources: []Caches{answers{c}}}
	registry := basemetrics.NewKubeRegistry()
	registry.CustomMustRegister(collector)
	c.Get(1)
	for key := range 5 {
		c.Add(key, "")
	}
	c.Get(4)
	c.Get(4)
	const want = `
# HELP kubedevice_scheduler_cache_evictions_total [ALPHA] Entries of a cache that were replaced by others.
# TYPE kubedevice_scheduler_cache_evictions_total counter
kubedevice_scheduler_cache_evictions_total{cache="answers"} 1
# HELP kubedevice_scheduler_cache_hits_total [ALPHA] Look-ups in a cache that found an answer.
# TYPE kubedevice_scheduler_cache_hits_total counter
kubedevice_scheduler_cache_hits_total{cache="answers"} 2
# HELP kubedevice_scheduler_cache_misses_total [ALPHA] Look-ups in a cache that found no answer.
# TYPE kubedevice_scheduler_cache_misses_total counter
kubedevice_scheduler_cache_misses_total{cache="answers"} 1
# HELP kubedevice_scheduler_cache_size [ALPHA] Entries of a cache.
# TYPE kubedevice_scheduler_cache_size gauge
kubedevice_scheduler_cache_size{cache="answers"} 4
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
