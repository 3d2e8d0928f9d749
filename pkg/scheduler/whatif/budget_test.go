// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"testing"
	"time"
)

// Between two stretches of its work a question leaves the core to the scheduler: for a hundred
// times as long while pods are scheduled, and else for as long as it has worked.
func TestAQuestionRestsLongerWhilePodsAreScheduled(t *testing.T) {
	f := newFixture(t, machines()[0].node())
	var slept time.Duration
	pause := func(time.Duration) {} // when so much was slept
	f.engine.sleep = func(d time.Duration) { slept += d; pause(slept) }
	rests := func() time.Duration {
		slept = 0
		f.engine.rest(time.Millisecond)
		return slept
	}
	if got := rests(); got != time.Millisecond {
		t.Errorf("while no pod is scheduled it rests for %v after 1 ms of work, want 1 ms", got)
	}
	f.create(newPod("plain", wish{}))
	f.scheduler.ScheduleOne(f.Context())
	if got := rests(); got != 101*time.Millisecond {
		t.Errorf("after a pod was scheduled it rests for %v after 1 ms of work, want 101 ms", got)
	}
	f.create(newPod("another", wish{}))
	f.scheduler.ScheduleOne(f.Context())
	pause = func(slept time.Duration) {
		if slept == 11*time.Millisecond {
			f.await("the scheduler has nothing to do", func() bool { return !f.engine.shared.Scheduling() })
		}
	}
	if got := rests(); got != 11*time.Millisecond {
		t.Errorf("it rests for %v, and after 11 ms no pod was scheduled any more", got)
	}
	if got := rests(); got != time.Millisecond {
		t.Errorf("when no pod is scheduled any more it rests for %v after 1 ms of work, want 1 ms", got)
	}
}
