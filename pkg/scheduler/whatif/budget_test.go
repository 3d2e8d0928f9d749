// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"fmt"
	"testing"
	"time"
)

// Between two stretches of its work a question leaves the core to the scheduler: a hundred times as
// long while the scheduler schedules pods, and as long as it has worked otherwise.
func TestQuestionRestsLongerWhilePodsAreScheduled(t *testing.T) {
	f := newFixture(t, machines()[0].node())
	var slept time.Duration
	pods := 0
	onSleep := func(time.Duration) {} // called with the total time slept
	f.engine.clock = sleeps(func(d time.Duration) { slept += d; onSleep(slept) })
	rests := func() time.Duration {
		slept = 0
		f.engine.throttle(time.Millisecond)
		return slept
	}
	if got := rests(); got != time.Millisecond {
		t.Errorf("while no pod is scheduled it rests for %v after 1 ms of work, want 1 ms", got)
	}
	// A scheduled pod counts for 100 ms of the clock; a slow machine may take longer to get here.
	restsAfterAPod := func(want time.Duration) {
		t.Helper()
		f.await(fmt.Sprintf("after a pod was scheduled it rests for %v after 1 ms of work", want), func() bool {
			pods++
			f.create(newPod(fmt.Sprint("plain-", pods), gpuRequest{}))
			f.scheduler.ScheduleOne(f.Context())
			return rests() == want
		})
	}
	restsAfterAPod(101 * time.Millisecond)
	onSleep = func(slept time.Duration) {
		if slept == 11*time.Millisecond {
			f.await("the scheduler has nothing to do", func() bool { return !f.engine.shared.Scheduling() })
		}
	}
	restsAfterAPod(11 * time.Millisecond)
	if got := rests(); got != time.Millisecond {
		t.Errorf("when no pod is scheduled any more it rests for %v after 1 ms of work, want 1 ms", got)
	}
}
