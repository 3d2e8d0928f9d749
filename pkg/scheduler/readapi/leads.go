// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	_ "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection" // makes leaderMetric
	"k8s.io/utils/clock"
)

const (
	// leaderMetric is upstream's metric of who leads. It is 0 from the moment at which the election
	// begins, and absent where there is none.
	leaderMetric = "leader_election_master_status"
	// leadsTTL is how long a reading of it counts: reading one metric collects all of them.
	leadsTTL = time.Second
	// electionPause is how long upstream takes at most from a complete state to the election.
	electionPause = time.Second
)

// leadership knows whether this process leads. Upstream tells its plugins nothing about that, but
// has it in a metric. It is safe for concurrent use.
type leadership struct {
	metrics  metrics.Gatherer
	complete func() time.Time // see Options.Self
	clock    clock.PassiveClock

	mu    sync.Mutex
	read  time.Time
	leads bool
}

// Leads reports whether this process leads. Without an election, it does as soon as it knows the
// cluster.
func (l *leadership) Leads() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.clock.Now(); now.Sub(l.read) >= leadsTTL {
		l.leads, l.read = l.gather(now), now
	}
	return l.leads
}

func (l *leadership) gather(now time.Time) bool {
	families, _ := l.metrics.Gather() // an error is about others: it comes with what could be read
	for _, family := range families {
		if family.GetName() != leaderMetric {
			continue
		}
		for _, metric := range family.GetMetric() {
			if metric.GetGauge().GetValue() == 1 {
				return true
			}
		}
		return false
	}
	since := l.complete()
	return !since.IsZero() && now.Sub(since) >= electionPause
}
