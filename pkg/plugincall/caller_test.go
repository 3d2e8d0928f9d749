// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugincall

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const limit = time.Second

// fixture is a plugin's caller with a fake clock, and the observed calls.
type fixture struct {
	*Caller
	clock *clocktesting.FakeClock

	mu       sync.Mutex
	observed []string
}

func newFixture(policy Policy, concurrent bool) *fixture {
	f := &fixture{clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))}
	policy.Kind, policy.Clock = "device plugin", f.clock
	policy.Observe = func(plugin, method string, took time.Duration, err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.observed = append(f.observed, fmt.Sprintf("%s %s: %s in %v", plugin, method, OutcomeOf(err), took))
	}
	f.Caller = New(policy, "p", concurrent)
	return f
}

func (f *fixture) do(ctx context.Context, call Call, fn func()) error {
	call.Method, call.Timeout = "Fit", limit
	_, err := Do(ctx, f.Caller, call, func() (struct{}, error) { fn(); return struct{}{}, nil })
	return err
}

// hang starts a call that does not return before release, and returns when the caller has abandoned
// it.
func (f *fixture) hang(t *testing.T, call Call, release <-chan struct{}) error {
	t.Helper()
	result, entered := make(chan error, 1), make(chan struct{})
	go func() { result <- f.do(t.Context(), call, func() { close(entered); <-release }) }()
	<-entered // the timeout has started before
	f.clock.Step(limit)
	return <-result
}

// waitFor waits until the condition holds.
func waitFor(t *testing.T, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !condition(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("the condition is not met")
		}
	}
}

func TestDoReturnsTheResultOrAFailure(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		fn      func() (int, error)
		want    int
		says    string
		outcome Outcome
	}{
		"a result": {fn: func() (int, error) { return 7, nil }, want: 7, outcome: Answered},
		"an error": {fn: func() (int, error) { return 0, broken }, says: "broken", outcome: Errored},
		"a panic":  {fn: func() (int, error) { panic("ouch") }, says: "panic: ouch", outcome: Panicked},
		"a panic of nil": {
			fn: func() (int, error) { panic(nil) }, says: "panic: panic called with nil argument", outcome: Panicked,
		},
		"the end of the goroutine": {
			fn:   func() (int, error) { runtime.Goexit(); return 7, nil },
			says: "it ended the goroutine", outcome: Panicked,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(Policy{}, false)
			for range 2 { // the second shows that the first has returned
				f.observed = nil
				got, err := Do(t.Context(), f.Caller, Call{Method: "Fit", Timeout: limit}, func() (int, error) {
					f.clock.Step(time.Millisecond)
					return test.fn()
				})
				if got != test.want || (err == nil) != (test.says == "") {
					t.Fatalf("got %d, error %v", got, err)
				}
				if err != nil && !strings.HasPrefix(err.Error(), `device plugin "p": Fit: `+test.says) {
					t.Errorf("error %v, want %q", err, test.says)
				}
				if want := []string{fmt.Sprintf("p Fit: %s in 1ms", test.outcome)}; !slices.Equal(f.observed, want) {
					t.Errorf("observed %q, want %q", f.observed, want)
				}
			}
		})
	}
}

func TestCallWithoutTimeoutRunsInTheCallersGoroutine(t *testing.T) {
	f := newFixture(Policy{}, false)
	unlimited := func(fn func() (int, error)) (int, error) {
		return Do(t.Context(), f.Caller, Call{Method: "Fit"}, fn)
	}
	goroutines, during := runtime.NumGoroutine(), 0
	got, err := unlimited(func() (int, error) { during = runtime.NumGoroutine(); return 7, nil })
	if got != 7 || err != nil {
		t.Errorf("it returned %d, %v", got, err)
	}
	if during != goroutines {
		t.Errorf("%d goroutines ran, and before the call %d", during, goroutines)
	}
	if _, err := unlimited(func() (int, error) { panic("ouch") }); OutcomeOf(err) != Panicked {
		t.Errorf("a panic: %v", err)
	}
	if got, err := unlimited(func() (int, error) { return 8, nil }); got != 8 || err != nil {
		t.Errorf("after a panic it returned %d, %v", got, err)
	}
	want := []string{"p Fit: answered in 0s", "p Fit: panic in 0s", "p Fit: answered in 0s"}
	if !slices.Equal(f.observed, want) {
		t.Errorf("observed %q, want %q", f.observed, want)
	}
}

func TestDoWrapsThePluginsError(t *testing.T) {
	broken := errors.New("broken")
	f := newFixture(Policy{}, false)
	_, err := Do(t.Context(), f.Caller, Call{Method: "Fit", Timeout: limit}, func() (int, error) { return 0, broken })
	if !errors.Is(err, broken) {
		t.Errorf("error %v does not match the plugin's", err)
	}
}

func TestCountsAnAbandonedCallUntilItReturns(t *testing.T) {
	f := newFixture(Policy{}, false)
	release, returned := make(chan struct{}), make(chan time.Duration, 1)
	err := f.hang(t, Call{Returned: func(took time.Duration) { returned <- took }}, release)
	if OutcomeOf(err) != TimedOut || !strings.HasSuffix(err.Error(), "no answer within 1s") {
		t.Errorf("error %v", err)
	}
	f.clock.Step(time.Minute)
	err = f.do(t.Context(), Call{}, func() { t.Error("the plugin is entered twice") })
	const want = "an earlier call of Fit has not returned since 12:00:00"
	if OutcomeOf(err) != NotReturned || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("error %v", err)
	}
	if got := f.Overdue(); got != 1 {
		t.Errorf("%d calls are overdue, want 1", got)
	}
	close(release)
	if got, want := <-returned, time.Minute+limit; got != want {
		t.Errorf("it ran for %v, want %v", got, want)
	}
	waitFor(t, func() bool { return f.do(t.Context(), Call{}, func() {}) == nil })
	if got := f.Overdue(); got != 0 {
		t.Errorf("%d calls are overdue, want none", got)
	}
}

func TestQueuedCallFailsWhenTheRunningOneTimesOut(t *testing.T) {
	f := newFixture(Policy{}, false)
	release, entered := make(chan struct{}), make(chan struct{})
	var calls sync.WaitGroup
	calls.Go(func() { _ = f.do(t.Context(), Call{}, func() { close(entered); <-release }) })
	<-entered
	results := make(chan error, 3)
	for range cap(results) {
		go func() { results <- f.do(t.Context(), Call{}, func() { t.Error("the plugin is entered twice") }) }()
	}
	waitFor(t, f.clock.HasWaiters)
	f.clock.Step(limit)
	for range cap(results) {
		if err := <-results; OutcomeOf(err) != NotReturned {
			t.Errorf("error %v", err)
		}
	}
	close(release)
	calls.Wait()
}

func TestSlowQueuedCallsAreNotTakenForAHangingOne(t *testing.T) {
	f := newFixture(Policy{}, false)
	release := make(chan struct{})
	const count = 8
	results := make(chan error, count)
	for range count {
		go func() { results <- f.do(t.Context(), Call{}, func() { <-release }) }()
	}
	for range count {
		waitFor(t, f.clock.HasWaiters)
		f.clock.Step(limit * 3 / 4)
		release <- struct{}{}
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
}

func TestTimeoutCanEndTheWaitInTheQueue(t *testing.T) {
	for name, test := range map[string]struct {
		end func(*fixture, context.CancelFunc)
	}{
		"the limit":              {func(f *fixture, _ context.CancelFunc) { f.clock.Step(limit) }},
		"the end of the context": {func(_ *fixture, cancel context.CancelFunc) { cancel() }},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(Policy{TimeoutCoversQueue: true}, false)
			release := make(chan struct{})
			if err := f.hang(t, Call{}, release); OutcomeOf(err) != TimedOut {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			result := make(chan error, 1)
			go func() { result <- f.do(ctx, Call{}, func() { t.Error("the plugin is entered twice") }) }()
			waitFor(t, f.clock.HasWaiters)
			test.end(f, cancel)
			if err := <-result; OutcomeOf(err) != NotReturned {
				t.Errorf("error %v", err)
			}
			close(release)
			waitFor(t, func() bool { return f.Overdue() == 0 })
		})
	}
}

func TestContextEndsACallOnlyIfThePolicySaysSo(t *testing.T) {
	for name, coversQueue := range map[string]bool{"it does": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(Policy{TimeoutCoversQueue: coversQueue}, false)
			ctx, cancel := context.WithCancelCause(t.Context())
			release, entered, result := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			go func() { result <- f.do(ctx, Call{}, func() { close(entered); <-release }) }()
			<-entered
			cancel(errors.New("shutting down"))
			if coversQueue {
				err := <-result
				if OutcomeOf(err) != TimedOut || !strings.HasSuffix(err.Error(), "Fit: shutting down") {
					t.Errorf("error %v", err)
				}
				close(release)
			} else {
				close(release)
				if err := <-result; err != nil {
					t.Errorf("error %v", err)
				}
			}
			waitFor(t, func() bool { return f.Overdue() == 0 })
		})
	}
}

func TestConcurrentPluginIsCalledUntilTooManyCallsHang(t *testing.T) {
	for name, coversQueue := range map[string]bool{"the timeout covers the queue": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			testTooManyCallsHang(t, Policy{MaxOverdue: 2, TimeoutCoversQueue: coversQueue})
		})
	}
}

func testTooManyCallsHang(t *testing.T, policy Policy) {
	f := newFixture(policy, true)
	release := make(chan struct{})
	for range 2 {
		if err := f.do(t.Context(), Call{}, func() {}); err != nil {
			t.Fatal(err)
		}
		if err := f.hang(t, Call{}, release); OutcomeOf(err) != TimedOut {
			t.Fatal(err)
		}
	}
	err := f.do(t.Context(), Call{}, func() {})
	if OutcomeOf(err) != NotReturned || !strings.HasSuffix(err.Error(), "2 earlier calls have not returned") {
		t.Errorf("error %v", err)
	}
	close(release)
	waitFor(t, func() bool { return f.do(t.Context(), Call{}, func() {}) == nil })
	waitFor(t, func() bool { return f.Overdue() == 0 })
}

// Many concurrent callers make calls, some of which panic, end their goroutine or exceed their
// timeout. No two calls run at once in a plugin that is not safe for that, and every caller gets an
// answer.
func TestCallsAreConcurrentOnlyIfThePluginIsSafe(t *testing.T) {
	for name, concurrent := range map[string]bool{"one at a time": false, "concurrent": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(Policy{}, concurrent)
			var inside, most atomic.Int32
			var callers sync.WaitGroup
			gate := make(chan struct{})
			for seed := range uint64(8) {
				callers.Go(func() {
					random := rand.New(rand.NewPCG(seed, 0))
					for i := range 50 {
						kind := random.IntN(4)
						err := f.do(t.Context(), Call{}, func() {
							now := inside.Add(1)
							defer inside.Add(-1)
							for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
							}
							if concurrent && i == 0 {
								if now == 8 {
									close(gate)
								}
								<-gate
							}
							switch kind {
							case 0:
								panic("ouch")
							case 1:
								runtime.Goexit()
							}
						})
						if want := kind <= 1; (err != nil) != want {
							t.Errorf("error %v", err)
						}
					}
				})
			}
			callers.Wait()
			want := int32(1)
			if concurrent {
				want = 8
			}
			if got := most.Load(); got != want {
				t.Errorf("%d calls at once, want %d", got, want)
			}
		})
	}
}
