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
	// reportPause is the time between two rounds of events about bound pods. Each round has at most
	// reportsAtOnce of a kind.
	reportPause   = 10 * time.Second
	reportsAtOnce = 10

	// explainedWait is the shortest wait for a leader that is explained: between two leaders that
	// both serve a pod there are a few seconds.
	explainedWait = 10 * time.Second

	// momentAgo is how long after a pod the next one is waited for, until the scheduler is taken to
	// have nothing to do.
	momentAgo = 100 * time.Millisecond
)

// leadership knows since when this scheduler leads. The framework does not say so: it is known from
// the first pod that is scheduled. A scheduler that no longer leads ends.
type leadership struct {
	began atomic.Pointer[time.Time]
	last  atomic.Int64 // when it scheduled a pod, in nanoseconds since 1970
}

// lead notes that this scheduler schedules a pod.
func (s *Shared) lead() {
	now := s.clock.Now()
	s.last.Store(now.UnixNano())
	if s.began.Load() == nil {
		s.began.CompareAndSwap(nil, &now)
	}
}

// Scheduling reports whether any pod, with or without devices, was scheduled a moment ago.
func (s *Shared) Scheduling() bool {
	return s.clock.Since(time.Unix(0, s.last.Load())) < momentAgo
}

// every calls f in rounds with this pause, in a goroutine of its own, while this scheduler leads:
// standbys know the same pods and report none.
func (s *Shared) every(pause time.Duration, f func(context.Context)) {
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
// was created long before this scheduler led. Once a scheduler has tried a pod in vain, the pod's
// condition says so.
func (p *Plugin) explainWait(pod *v1.Pod) {
	if pod.Spec.SchedulerName != SchedulerName || tried(pod) {
		return
	}
	waited := p.began.Load().Sub(pod.CreationTimestamp.Time)
	if waited <= explainedWait {
		return
	}
	p.handle.EventRecorder().Eventf(pod, nil, v1.EventTypeNormal, "WaitedForScheduler", "Scheduling",
		"the pod waited %v, as no scheduler that serves the scheduler name %q led; upstream's leaves such pods alone, "+
			"so that none is bound without its devices", waited.Round(time.Second), SchedulerName)
}

// tried reports whether a scheduler has tried the pod in vain, or a gate kept schedulers from it.
func tried(pod *v1.Pod) bool {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == v1.PodScheduled {
			return true
		}
	}
	return false
}
