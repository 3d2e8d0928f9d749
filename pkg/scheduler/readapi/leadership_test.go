// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// newLeadership returns the leadership of a registry. Its state has been complete for a minute, or
// is not complete.
func newLeadership(registry metrics.KubeRegistry, complete bool) (*Leadership, *clocktesting.FakePassiveClock) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	l := &Leadership{metrics: registry, registerer: registry.Registerer(), clock: clock, knowledge: unknown{}}
	if complete {
		l.knowledge = aMinuteBefore{clock}
	}
	return l, clock
}

// unknown is the knowledge of a process that does not know the cluster.
type unknown struct{}

func (unknown) CompleteSince() time.Time { return time.Time{} }

// since is the knowledge of a process that knows the cluster since then.
type since time.Time

func (s since) CompleteSince() time.Time { return time.Time(s) }

// aMinuteBefore is the knowledge of a process that knows the cluster for a minute at any time.
type aMinuteBefore struct{ clock clock.PassiveClock }

func (k aMinuteBefore) CompleteSince() time.Time { return k.clock.Now().Add(-time.Minute) }

func TestUpstreamsMetricDecidesWhoLeads(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	gauge := metrics.NewGaugeVec(&metrics.GaugeOpts{Name: leaderMetric}, []string{"name"})
	registry.MustRegister(gauge)
	l, clock := newLeadership(registry, true)
	for _, test := range []struct {
		value float64
		leads bool
	}{{0, false}, {1, true}, {0, false}} {
		gauge.WithLabelValues("kube-scheduler").Set(test.value)
		clock.SetTime(clock.Now().Add(leadsTTL))
		if l.Leads() != test.leads {
			t.Errorf("the metric is %v, and Leads returns %v", test.value, !test.leads)
		}
	}
}

func TestLeadsWithoutElectionWhenStateIsComplete(t *testing.T) {
	for _, complete := range []bool{false, true} {
		if l, _ := newLeadership(metrics.NewKubeRegistry(), complete); l.Leads() != complete {
			t.Errorf("complete %v: leads %v", complete, !complete)
		}
	}
}

// counted counts how often it is collected.
type counted struct {
	prometheus.Gauge
	times int
}

func (c *counted) Collect(to chan<- prometheus.Metric) {
	c.times++
	c.Gauge.Collect(to)
}

func TestReadsOnlyTheLeaderMetricOnceItExists(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	other := &counted{Gauge: prometheus.NewGauge(prometheus.GaugeOpts{Name: "other"})}
	registry.RawMustRegister(other)
	l, clock := newLeadership(registry, false)
	read := func() bool {
		clock.SetTime(clock.Now().Add(leadsTTL))
		return l.Leads()
	}
	read()
	// Upstream registers it like this when the election begins: the search must not prevent that.
	gauge := metrics.NewGaugeVec(&metrics.GaugeOpts{Name: leaderMetric, Help: "who leads"}, []string{"name"})
	registry.MustRegister(gauge)
	read()
	gauge.WithLabelValues("kube-scheduler").Set(1)
	if !read() || other.times != 3 {
		t.Fatalf("the others were collected %d times, want 3, or it does not lead", other.times)
	}
	if !read() || other.times != 3 {
		t.Errorf("the others are collected %d times, want 3, or it does not lead", other.times)
	}
	gauge.WithLabelValues("kube-scheduler").Set(0)
	if read() {
		t.Error("it leads still")
	}
}

func TestSearchesForTheLeaderMetricOnceAMinuteWithoutElection(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	other := &counted{Gauge: prometheus.NewGauge(prometheus.GaugeOpts{Name: "other"})}
	registry.RawMustRegister(other)
	l, clock := newLeadership(registry, true)
	l.knowledge = since(time.Unix(1000, 0))
	read := func(after time.Duration, leads bool, times int) {
		t.Helper()
		clock.SetTime(clock.Now().Add(after))
		if l.Leads() != leads || other.times != times {
			t.Errorf("%v: leads %v, after %d readings of all metrics, want %d", clock.Now(), !leads, other.times, times)
		}
	}
	// In the first minute, an election may still begin.
	read(0, false, 1)
	for i := range 60 {
		read(time.Second, true, 2+i)
	}
	read(time.Second, true, 61)
	read(58*time.Second, true, 61)
	gauge := metrics.NewGaugeVec(&metrics.GaugeOpts{Name: leaderMetric}, []string{"name"})
	registry.MustRegister(gauge)
	gauge.WithLabelValues("kube-scheduler").Set(0)
	read(time.Second, false, 62)
	gauge.WithLabelValues("kube-scheduler").Set(1)
	read(time.Second, true, 62)
}

// The cost of reading all metrics of this process, and one alone. A scheduler has more.
func BenchmarkLeads(b *testing.B) {
	gauge := metrics.NewGaugeVec(&metrics.GaugeOpts{Name: leaderMetric}, []string{"name"})
	legacyregistry.MustRegister(gauge)
	gauge.WithLabelValues("kube-scheduler").Set(1)
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	l := &Leadership{
		metrics: legacyregistry.DefaultGatherer, registerer: legacyregistry.Registerer(), clock: clock,
		knowledge: unknown{},
	}
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l.alone = nil
			l.gather(clock.Now())
		}
	})
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l.gather(clock.Now())
		}
	})
}
