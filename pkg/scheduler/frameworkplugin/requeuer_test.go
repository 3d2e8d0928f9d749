// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// activations counts the activations of a queue.
type activations struct{ pending *atomic.Int32 }

func (a activations) activatePending(context.Context) { a.pending.Add(1) }

func (a activations) activate(context.Context, *v1.Pod) {}

func TestManyCallsShareTheEarliestActivation(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	var activated atomic.Int32
	var running background
	running.init(t.Context())
	defer running.Close()
	r := &requeuer{runner: &running, clock: clock, queue: activations{&activated}}
	step := func(what string, by time.Duration, waiters int, want int32) {
		t.Helper()
		await(t, what+": the requeuer waits", func() bool { return clock.Waiters() == waiters })
		clock.Step(by)
		await(t, what+": the requeuer activates", func() bool { return activated.Load() == want })
	}
	r.activateAfter(time.Minute)
	r.activateAfter(time.Hour)
	r.activateAfter(time.Second)
	r.activateAfter(time.Second)
	step("asked four times", time.Second, 2, 1)
	r.activateAfter(2 * time.Hour)
	step("the later one is not needed any more", 2*time.Hour, 2, 2)
	r.activateAfter(0)
	step("after a pause", requeueInterval-1, 1, 2)
	step("which is over", 1, 1, 3)
	running.Close()
	if got := activated.Load(); got != 3 {
		t.Errorf("activated %d times, want 3", got)
	}
}
