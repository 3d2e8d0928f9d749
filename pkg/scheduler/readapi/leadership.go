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
	// leaderMetric is upstream's metric of the leader. It is 0 when the election begins, and absent
	// without an election.
	leaderMetric = "leader_election_master_status"
	// leadsTTL is how long a value of it stays valid.
	leadsTTL = time.Second
	// electionDelay is the maximum time that upstream takes from a complete state to the election.
	electionDelay = time.Second
	// noElectionDelay is the time after a complete state that proves that there is no election, and
	// noElectionTTL is how long this result stays valid.
	noElectionDelay = time.Minute
	noElectionTTL   = time.Minute
)

// Leadership knows whether this process leads. Upstream does not report that to its plugins, but
// has a metric of it. Leadership is safe for concurrent use.
//
// A registry collects all of its metrics to read one: 2 ms in BenchmarkLeads, and more in a
// scheduler, which has more of them; the metric alone takes 0.03 ms. So Leadership searches all
// metrics until the metric exists, and reads it alone from then on. Without an election, it
// searches once a minute.
type Leadership struct {
	metrics    metrics.Gatherer
	registerer prometheus.Registerer // of metrics
	knowledge  Knowledge
	clock      clock.PassiveClock

	mu         sync.Mutex
	alone      metrics.Gatherer // of the metric; nil until it exists
	noElection bool             // proved
	read       time.Time
	leads      bool
}

// Knowledge is what a process knows of the cluster.
type Knowledge interface {
	// CompleteSince returns the time since which the process knows the whole cluster, or the zero
	// time.
	CompleteSince() time.Time
}

// NewLeadership returns the leadership of this process.
func NewLeadership(knowledge Knowledge) *Leadership {
	return &Leadership{
		metrics: legacyregistry.DefaultGatherer, registerer: legacyregistry.Registerer(), knowledge: knowledge,
		clock: clock.RealClock{},
	}
}

// Leads reports whether this process leads. Without an election, a process that knows the cluster
// leads.
func (l *Leadership) Leads() bool {
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

func (l *Leadership) gather(now time.Time) bool {
	gatherer := l.metrics
	if l.alone != nil {
		gatherer = l.alone
	}
	families, _ := gatherer.Gather() // an error concerns other metrics; the result has the readable ones
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
	since := l.knowledge.CompleteSince()
	if since.IsZero() {
		return false
	}
	l.noElection = now.Sub(since) >= noElectionDelay
	return now.Sub(since) >= electionDelay
}

// find returns a gatherer of the metric alone, which is registered with this help. It is nil if
// upstream registers the metric in a new way.
func (l *Leadership) find(help string) metrics.Gatherer {
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
