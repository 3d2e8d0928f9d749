// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection" // makes leaderMetric
	"k8s.io/utils/clock"
)

const (
	// leaderMetric is upstream's metric of who leads. It is 0 from the moment at which the election
	// begins, and absent where there is none.
	leaderMetric = "leader_election_master_status"
	// leadsTTL is how long a reading of it counts.
	leadsTTL = time.Second
	// electionPause is how long upstream takes at most from a complete state to the election.
	electionPause = time.Second
	// noElectionPause is how long after a complete state it is settled that there is no election,
	// and noElectionTTL how long that counts then.
	noElectionPause = time.Minute
	noElectionTTL   = time.Minute
)

// leadership knows whether this process leads. Upstream tells its plugins nothing about that, but
// has it in a metric. It is safe for concurrent use.
//
// A registry collects all of its metrics to read one: 2 ms in BenchmarkLeads, and more in a
// scheduler, which has more of them; the metric alone takes 0.03 ms. So it is looked for among all
// of them until it is there, and is read alone from then on; where there is no election, it is
// looked for once a minute.
type leadership struct {
	metrics    metrics.Gatherer
	registerer prometheus.Registerer // of metrics
	complete   func() time.Time      // see Options.Self
	clock      clock.PassiveClock

	mu         sync.Mutex
	alone      metrics.Gatherer // of the metric; nil before it is found
	noElection bool             // it is settled
	read       time.Time
	leads      bool
}

// Leads returns a function that reports whether this process leads. complete returns since when the
// process knows the cluster, the zero time if it does not. The function is safe for concurrent use.
func Leads(complete func() time.Time) func() bool {
	l := &leadership{metrics: legacyregistry.DefaultGatherer, complete: complete, clock: clock.RealClock{}}
	return l.Leads
}

// Leads reports whether this process leads. Without an election, it does as soon as it knows the
// cluster.
func (l *leadership) Leads() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	ttl := leadsTTL
	if l.noElection {
		ttl = noElectionTTL
	}
	if now := l.clock.Now(); now.Sub(l.read) >= ttl {
		l.leads, l.read = l.gather(now), now
	}
	return l.leads
}

func (l *leadership) gather(now time.Time) bool {
	from := l.metrics
	if l.alone != nil {
		from = l.alone
	}
	families, _ := from.Gather() // an error is about others: it comes with what could be read
	for _, family := range families {
		if family.GetName() != leaderMetric {
			continue
		}
		l.noElection = false
		if l.alone == nil {
			l.alone = l.find(family.GetHelp())
		}
		for _, metric := range family.GetMetric() {
			if metric.GetGauge().GetValue() == 1 {
				return true
			}
		}
		return false
	}
	since := l.complete()
	if since.IsZero() {
		return false
	}
	l.noElection = now.Sub(since) >= noElectionPause
	return now.Sub(since) >= electionPause
}

// find returns a gatherer of the metric alone, which is registered with this help. It is nil if
// upstream has registered it in another way than it used to.
func (l *leadership) find(help string) metrics.Gatherer {
	like := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: leaderMetric, Help: help}, []string{"name"})
	err := l.registerer.Register(like)
	if err == nil {
		l.registerer.Unregister(like)
		return nil
	}
	there := prometheus.AlreadyRegisteredError{}
	registry := prometheus.NewRegistry()
	if !errors.As(err, &there) || registry.Register(there.ExistingCollector) != nil {
		return nil
	}
	return registry
}
