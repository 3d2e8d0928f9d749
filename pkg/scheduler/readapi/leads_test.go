// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"testing"
	"time"

	"k8s.io/component-base/metrics"
	clocktesting "k8s.io/utils/clock/testing"
)

// newLeadership returns the leadership that a registry shows, at a moment when the state is
// complete for a minute, or not at all.
func newLeadership(registry metrics.KubeRegistry, complete bool) (*leadership, *clocktesting.FakePassiveClock) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	return &leadership{metrics: registry, clock: clock, complete: func() time.Time {
		if complete {
			return clock.Now().Add(-time.Minute)
		}
		return time.Time{}
	}}, clock
}

func TestWhoLeadsIsUpstreamsMetric(t *testing.T) {
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
			t.Errorf("the metric is %v, and it is said to lead: %v", test.value, !test.leads)
		}
	}
}

func TestWithoutAnElectionItLeadsWhenItKnowsTheCluster(t *testing.T) {
	for _, complete := range []bool{false, true} {
		if l, _ := newLeadership(metrics.NewKubeRegistry(), complete); l.Leads() != complete {
			t.Errorf("complete %v: leads %v", complete, !complete)
		}
	}
}
