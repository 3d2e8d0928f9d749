// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
)

const (
	// reportInterval is the time between two rounds of events about bound pods. Each round has at
	// most maxReports of a kind.
	reportInterval = 10 * time.Second
	maxReports     = 10

	// minExplainedWait is the shortest wait for a leader that is explained: between two leaders
	// that both serve a pod there are a few seconds.
	minExplainedWait = 10 * time.Second

	// idleAfter is how long after a pod the next one is waited for, until the scheduler is taken to
	// have nothing to do.
	idleAfter = 100 * time.Millisecond
)

// leadership knows since when this scheduler leads. The framework does not say so: it is known from
// the first pod that is scheduled. A scheduler that no longer leads ends.
type leadership struct {
	began atomic.Pointer[time.Time]
	last  atomic.Int64 // when it scheduled a pod, in nanoseconds since 1970
}

// noteLeading notes that this scheduler schedules a pod.
func (s *Shared) noteLeading() {
	now := s.clock.Now()
	s.last.Store(now.UnixNano())
	if s.began.Load() == nil {
		s.began.CompareAndSwap(nil, &now)
	}
}

// Scheduling reports whether any pod, with or without devices, was scheduled a moment ago.
func (s *Shared) Scheduling() bool {
	return s.clock.Since(time.Unix(0, s.last.Load())) < idleAfter
}

// runWhileLeading calls f in rounds with this pause, in a goroutine of its own, while this
// scheduler leads: standbys know the same pods and report none.
func (s *Shared) runWhileLeading(pause time.Duration, f func(context.Context)) {
	clk := s.clock
	s.Run(func(ctx context.Context) {
		ticker := clk.NewTicker(pause)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C():
				if s.began.Load() != nil {
					f(ctx)
				}
			}
		}
	})
}

// explainWait writes an event for a pod under SchedulerName that is tried for the first time and
// was created long before this scheduler led. Once a scheduler has tried a pod without success, the
// pod's condition says so.
func (p *Plugin) explainWait(pod *v1.Pod) {
	if pod.Spec.SchedulerName != SchedulerName || wasTried(pod) {
		return
	}
	waited := p.began.Load().Sub(pod.CreationTimestamp.Time)
	if waited <= minExplainedWait {
		return
	}
	p.handle.EventRecorder().Eventf(pod, nil, v1.EventTypeNormal, "WaitedForScheduler", "Scheduling",
		"the pod waited %v, as no scheduler that serves the scheduler name %q led; upstream's leaves such pods alone, "+
			"so that none is bound without its devices", waited.Round(time.Second), SchedulerName)
}

// wasTried reports whether a scheduler has tried the pod without success, or a gate kept schedulers
// from it.
func wasTried(pod *v1.Pod) bool {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == v1.PodScheduled {
			return true
		}
	}
	return false
}
