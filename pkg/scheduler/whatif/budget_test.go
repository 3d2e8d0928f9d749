// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"testing"
	"time"
)

// Between two stretches of its work a question leaves the core to the scheduler: for 39 times as
// long when a pod was scheduled a moment ago, and else for as long as it has worked.
func TestAQuestionRestsLongerWhilePodsAreScheduled(t *testing.T) {
	f := newFixture(t, machines()[0].node())
	var slept time.Duration
	f.engine.sleep = func(d time.Duration) { slept += d }
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
	if got := rests(); got != 39*time.Millisecond {
		t.Errorf("after a pod was scheduled it rests for %v after 1 ms of work, want 39 ms", got)
	}
	f.await("the scheduler has nothing to do", func() bool { return rests() == time.Millisecond })
}
