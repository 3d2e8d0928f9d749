// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/kubedevice/kubedevice/pkg/cache"
)

// The metrics of caches. Each has one value for each cache.
var (
	cacheHits      = describeCache("hits_total", "Look-ups in a cache that found an answer.")
	cacheMisses    = describeCache("misses_total", "Look-ups in a cache that found no answer.")
	cacheEvictions = describeCache("evictions_total", "Entries of a cache that were replaced by others.")
	cacheSize      = describeCache("size", "Entries of a cache.")
)

func describeCache(name, help string) *metrics.Desc {
	return metrics.NewDesc(
		metrics.BuildFQName(namespace, subsystem, "cache_"+name), help, []string{"cache"}, nil, metrics.ALPHA, "")
}

// Caches are caches with metrics.
type Caches interface {
	// CacheStats returns what the caches have done so far, by their names.
	CacheStats() map[string]cache.Stats
}

// cacheCollector reads what caches have done when the metrics are read.
type cacheCollector struct {
	metrics.BaseStableCollector
	sources []Caches
}

// DescribeWithStability implements metrics.StableCollector.
func (*cacheCollector) DescribeWithStability(descs chan<- *metrics.Desc) {
	for _, desc := range []*metrics.Desc{cacheHits, cacheMisses, cacheEvictions, cacheSize} {
		descs <- desc
	}
}

// CollectWithStability implements metrics.StableCollector.
func (c *cacheCollector) CollectWithStability(values chan<- metrics.Metric) {
	for _, source := range c.sources {
		for name, stats := range source.CacheStats() {
			add := func(desc *metrics.Desc, kind metrics.ValueType, value uint64) {
				values <- metrics.NewLazyConstMetric(desc, kind, float64(value), name)
			}
			add(cacheHits, metrics.CounterValue, stats.Hits)
			add(cacheMisses, metrics.CounterValue, stats.Misses)
			add(cacheEvictions, metrics.CounterValue, stats.Evictions)
			add(cacheSize, metrics.GaugeValue, stats.Entries)
		}
	}
}

// RegisterCaches adds the metrics of these caches to the scheduler's registry. Of several calls in
// one process the first counts.
func RegisterCaches(sources ...Caches) {
	_ = legacyregistry.CustomRegister(&cacheCollector{sources: sources}) // it fails for all but the first
}
