// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifrontend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/kubedevice/kubedevice/pkg/node/admission"
	"github.com/kubedevice/kubedevice/pkg/node/nribound"
)

// listing is a runtime that NRI does not reach, with the frontend that prepares its registration.
type listing struct {
	*fixture // for what it lists, and for the admission
	frontend *Frontend
	failing  error // of ending a container

	ended []string
}

func newListing(t *testing.T) *listing {
	t.Helper()
	behind := newFixture(t)
	behind.start() // without it, nothing is known of grants
	l := &listing{fixture: &fixture{t: t, live: map[string]bool{}}}
	end := func(_ context.Context, id string) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.failing == nil {
			l.ended = append(l.ended, id)
			l.remove(id)
		}
		return l.failing
	}
	l.frontend = New(t.Context(), Options{
		Admission: behind.frontend.options.Admission, Source: l.fixture, Ender: ender(end),
		Key: l, Events: l,
	})
	t.Cleanup(l.frontend.Close)
	return l
}

// restarted returns a kubecri with the state of an earlier one, which the runtime has not
// registered yet.
func restarted(t *testing.T, before *fixture) *fixture {
	t.Helper()
	if err := before.checkpoint.Close(); err != nil {
		t.Fatal(err)
	}
	started := newFixtureAt(t, before.state)
	ctx, cancel := context.WithCancel(t.Context())
	var comparing sync.WaitGroup
	comparing.Go(func() { _ = started.checkpoint.Reconcile(ctx) }) // waits for the registration
	t.Cleanup(comparing.Wait)
	t.Cleanup(cancel)
	<-started.checkpoint.Opened()
	return started
}

// remove removes a container, or a sandbox with its containers. The caller holds the mutex.
func (f *fixture) remove(id string) {
	f.sandbox = slices.DeleteFunc(f.sandbox, func(s *api.PodSandbox) bool { return s.GetId() == id })
	f.running = slices.DeleteFunc(f.running, func(c *api.Container) bool {
		return c.GetId() == id || c.GetPodSandboxId() == id
	})
}

// large returns n containers of that many bytes of variables, and more.
func large(n, size int, created int64, env ...string) (containers []*api.Container) {
	for i := range n {
		containers = append(containers, &api.Container{
			Id: fmt.Sprintf("large-%d-%d", size, i), PodSandboxId: "sandbox-plain", Name: "main",
			CreatedAt: created * 1e9, Env: append(variables(size), env...),
		})
	}
	return containers
}

func TestContainersForWhichTheListCannotBeSentAreEndedBeforeTheRegistration(t *testing.T) {
	l := newListing(t)
	l.sandbox = append(l.sandbox, l.pod("plain", ""))
	l.running = large(8, 600<<10, installed+1)
	if err := l.frontend.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Six of 600 KiB fit into one message.
	if len(l.ended) != 2 {
		t.Errorf("%v are ended, want two", l.ended)
	}
	if said := strings.Join(l.warnings, "\n"); !strings.Contains(said, "strings in the list") {
		t.Errorf("the owners hear %s", said)
	}
}

// In a process that was just started nothing is known from the runtime.
func TestContainersThatAreOlderThanKubecriStayAndOthersThatTookDevicesAreEnded(t *testing.T) {
	before := newFixture(t)
	before.plugin.answers()
	before.start()
	if _, err := before.create(before.pod("holder", card0)); err != nil {
		t.Fatal(err)
	}
	l := newListing(t)
	l.frontend.options.Admission = restarted(t, before).frontend.options.Admission
	l.sandbox = append(l.sandbox, l.pod("plain", ""))
	thief := large(1, 100, installed+1, "NVIDIA_VISIBLE_DEVICES=all")
	old := large(8, 600<<10, installed-1)
	for _, c := range old {
		c.PodSandboxId = "old"
	}
	l.running = slices.Concat(old, thief, large(1, 101, installed+1))
	text := fmt.Sprint(l.frontend.Prepare(t.Context()))
	if !strings.Contains(text, "does not split") || !strings.Contains(text, `container "main"`) {
		t.Error(text)
	}
	if !slices.Equal(l.ended, []string{thief[0].GetId()}) {
		t.Errorf("%v are ended, want %s", l.ended, thief[0].GetId())
	}
	if said := strings.Join(l.warnings, "\n"); !strings.Contains(said, "NVIDIA_VISIBLE_DEVICES=all") {
		t.Errorf("the owners hear %s", said)
	}
}

// manyStrings are within the bounds of a pod, and those of 260 pods are more than can be sent.
var manyStrings = slices.Repeat([]string{""}, nribound.MaxStrings-100)

// admitted adds n pods with a container each, all within the bounds of a pod.
func (l *listing) admitted(n int) {
	for i := range n {
		pod := l.pod(fmt.Sprint("admitted", i), "")
		pod.Uid = "plain"
		l.sandbox = append(l.sandbox, pod)
		l.running = append(l.running, &api.Container{
			Id: fmt.Sprint("admitted", i), PodSandboxId: pod.GetId(), Name: "main", CreatedAt: (installed + 1) * 1e9,
			Env: manyStrings[:len(manyStrings)-n+i],
		})
	}
}

func TestAContainerThatDoesNotEndDoesNotDelayTheEndOfOthers(t *testing.T) {
	l := newListing(t)
	l.sandbox = append(l.sandbox, l.pod("plain", ""))
	l.running = append(large(1, nribound.Message, installed+1), large(1, nribound.Message+1, installed+1)...)
	slow := l.running[0].GetId()
	end := l.frontend.options.Ender
	l.frontend.options.Ender = ender(func(ctx context.Context, id string) error {
		if id == slow {
			<-ctx.Done()
			return ctx.Err()
		}
		return end.EndContainer(ctx, id)
	})
	if err := l.frontend.Prepare(t.Context()); err == nil || len(l.ended) != 1 {
		t.Errorf("%v are ended, %v", l.ended, err)
	}
}

// What ends goes on to be listed, for a while: the runtime is slow.
func TestASlowRuntimeEndsNothingTwiceAtATimeAndNothingOnceTheListCanBeSent(t *testing.T) {
	l := newListing(t)
	l.sandbox = append(l.finished(1500), l.pod("plain", ""))
	l.running = large(1, 100, installed+1)
	end := l.frontend.options.Ender
	var mu sync.Mutex
	running := map[string]bool{}
	l.frontend.options.Ender = ender(func(ctx context.Context, id string) error {
		mu.Lock()
		if running[id] = true; len(running) > maxRemovals {
			t.Errorf("%d are ended at a time", len(running))
		}
		mu.Unlock()
		time.Sleep(20 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		delete(running, id)
		return end.EndPod(ctx, id)
	})
	for l.frontend.Prepare(t.Context()) != nil {
	}
	mu.Lock()
	defer mu.Unlock()
	if len(running) > 0 {
		t.Errorf("%d are being ended after the list can be sent", len(running))
	}
	if distinct := slices.Compact(slices.Sorted(slices.Values(l.ended))); len(distinct) != len(l.ended) {
		t.Errorf("%d ends of %d sandboxes", len(l.ended), len(distinct))
	}
}

func TestTheListIsReadAgainUntilNoContainerComesThatIsTooLarge(t *testing.T) {
	l := newListing(t)
	l.sandbox = append(l.sandbox, l.pod("plain", ""))
	l.running = large(1, nribound.Message, installed+1)
	end := l.frontend.options.Ender
	const more = rounds - 2
	l.frontend.options.Ender = ender(func(ctx context.Context, id string) error {
		err := end.EndContainer(ctx, id)
		l.mu.Lock()
		defer l.mu.Unlock()
		if n := len(l.ended); n <= more {
			l.running = append(l.running, large(1, nribound.Message+n, installed+1)...)
		}
		return err
	})
	if err := l.frontend.Prepare(t.Context()); err != nil || len(l.ended) != 1+more {
		t.Errorf("%d are ended, %v", len(l.ended), err)
	}
	if list, err := l.List(t.Context()); err != nil || list.Check() != nil {
		t.Errorf("it connects to a runtime with %d containers that are too large", len(list.Containers))
	}
}

func TestPrepareReturnsAlsoWhereTheRuntimeListsWhatHasEnded(t *testing.T) {
	l := newListing(t)
	l.sandbox = append(l.sandbox, l.pod("plain", ""))
	l.running = large(1, nribound.Message, installed+1)
	l.frontend.options.Ender = ender(func(context.Context, string) error { return nil })
	if err := l.frontend.Prepare(t.Context()); err == nil {
		t.Error("it connects")
	}
}

func TestThousandsOfFinishedPodsDelayTheRegistrationLittle(t *testing.T) {
	const many = 4000
	l := newListing(t)
	l.sandbox = append(l.finished(many), l.pod("plain", ""))
	l.running = large(10, 100, installed+1)
	var ending atomic.Int32
	together := make(chan struct{})
	ended := map[string]bool{}
	l.frontend.options.Ender = ender(func(ctx context.Context, id string) error {
		if ending.Add(1) == maxRemovals {
			close(together)
		}
		select {
		case <-together:
		case <-ctx.Done():
			return ctx.Err()
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		ended[id] = true
		l.remove(id)
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := l.frontend.Prepare(ctx); err != nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Error("it takes a minute")
	}
	list, err := l.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := list.Check(); err != nil {
		t.Errorf("%d are removed, and the list cannot be sent: %v", len(ended), err)
	}
	t.Logf("%d are removed", len(ended))
	if len(ended) > many-nribound.MaxSandboxes/nribound.SmallSandbox {
		t.Error("these are too many")
	}
}

func TestASandboxThatCannotBeRemovedLeavesTheOthersRemoved(t *testing.T) {
	l := newListing(t)
	l.sandbox = append(l.finished(600), l.pod("plain", ""))
	l.running = large(1, 100, installed+1)
	var removed atomic.Int32
	l.frontend.options.Ender = ender(func(_ context.Context, id string) error {
		if id == "sandbox-finished0" {
			return errors.New("it hangs")
		}
		removed.Add(1)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.remove(id)
		return nil
	})
	err := l.frontend.Prepare(t.Context())
	if n := removed.Load(); n < 100 {
		t.Errorf("%d are removed, %v", n, err)
	}
}

func TestNoContainerIsWaitedForOfWhichNothingIsKnownYet(t *testing.T) {
	l := newListing(t)
	unsure := &unknowing{Admission: l.frontend.options.Admission}
	l.frontend.options.Admission = unsure
	l.admitted(260)
	ctx, cancel := context.WithTimeout(t.Context(), 10*inadmissibleTimeout)
	defer cancel()
	if err := l.frontend.Prepare(ctx); err != nil || len(l.ended) == 0 || unsure.calls == 0 {
		t.Errorf("%d are inspected, %v are ended, %v", unsure.calls, l.ended, err)
	}
}

// unknowing is an admission that does not know what to say.
type unknowing struct {
	Admission
	calls int
}

func (u *unknowing) Inspect(ctx context.Context, _ admission.Container) (string, error) {
	u.calls++
	<-ctx.Done()
	return "", ctx.Err()
}

func TestAContainerThatCannotBeEndedKeepsKubecriAway(t *testing.T) {
	l := newListing(t)
	l.running, l.failing = large(8, 600<<10, installed+1), errors.New("it hangs")
	if err := l.frontend.Prepare(t.Context()); err == nil {
		t.Error("it is connected")
	}
}

func TestKubecriIsNotConnectedWhileTheListCannotBeSent(t *testing.T) {
	f := newFixture(t)
	f.mu.Lock()
	f.running = large(8, 600<<10, installed-1)
	f.mu.Unlock()
	f.serve()
	await(t, "the registration says why", func() bool {
		err := f.registration.Check()
		return err != nil && strings.Contains(err.Error(), "cannot send its list")
	})
	if f.registration.Registered() {
		t.Error("it is registered")
	}
	f.mu.Lock()
	f.running = nil
	f.mu.Unlock()
	await(t, "kubecri is registered", f.registration.Registered)
}
