// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"fmt"
	"testing"
	"time"
)

// Between two stretches of its work a question leaves the core to the scheduler: for a hundred
// times as long while pods are scheduled, and else for as long as it has worked.
func TestAQuestionRestsLongerWhilePodsAreScheduled(t *testing.T) {
	f := newFixture(t, machines()[0].node())
	var slept time.Duration
	pods := 0
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
	// That a pod was scheduled holds for 100 ms of the clock, in which a busy machine may not get
	// here.
	restsAfterAPod := func(want time.Duration) {
		t.Helper()
		f.await(fmt.Sprintf("after a pod was scheduled it rests for %v after 1 ms of work", want), func() bool {
			pods++
			f.create(newPod(fmt.Sprint("plain-", pods), wish{}))
			f.scheduler.ScheduleOne(f.Context())
			return rests() == want
		})
	}
	restsAfterAPod(101 * time.Millisecond)
	pause = func(slept time.Duration) {
		if slept == 11*time.Millisecond {
			f.await("the scheduler has nothing to do", func() bool { return !f.engine.shared.Scheduling() })
		}
	}
	restsAfterAPod(11 * time.Millisecond)
	if got := rests(); got != time.Millisecond {
		t.Errorf("when no pod is scheduled any more it rests for %v after 1 ms of work, want 1 ms", got)
	}
}
