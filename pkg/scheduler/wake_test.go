// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestTheWakerWakesOnceForManyAndAsSoonAsTheFirstOfThemWants(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	var woken atomic.Int32
	w := &waker{background: newBackground(t.Context()), clock: clock, activate: func(context.Context) { woken.Add(1) }}
	defer w.background.close()
	step := func(what string, by time.Duration, waiters int, want int32) {
		t.Helper()
		await(t, what+": the waker waits", func() bool { return clock.Waiters() == waiters })
		clock.Step(by)
		await(t, what+": the waker wakes", func() bool { return woken.Load() == want })
	}
	w.in(time.Minute)
	w.in(time.Hour)
	w.in(time.Second)
	w.in(time.Second)
	step("asked four times", time.Second, 2, 1)
	w.in(2 * time.Hour)
	step("the later one is not needed any more", 2*time.Hour, 2, 2)
	w.background.close()
	if got := woken.Load(); got != 2 {
		t.Errorf("woken %d times, want 2", got)
	}
}
