// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifront

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/kubedevice/kubedevice/pkg/node/admission"
	"github.com/kubedevice/kubedevice/pkg/node/nribound"
	"github.com/kubedevice/kubedevice/pkg/node/nrilist"
)

// listing is a runtime that NRI does not reach, with the front that prepares its registration.
type listing struct {
	*fixture // for what it lists, and for the admission
	front    *Front
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
		}
		return l.failing
	}
	l.front = New(t.Context(), Options{
		Admission: behind.front.options.Admission, Source: l.fixture, Ender: ender(end),
		Key: l, Events: l,
	})
	t.Cleanup(l.front.Close)
	return l
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
	l.running = append(large(7, 600<<10, installed+1), large(1, 599<<10, installed+1, "NVIDIA_VISIBLE_DEVICES=all")...)
	past := l.running[7].GetId()
	if err := l.front.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Six of 600 KiB fit into one message.
	if len(l.ended) != 2 || l.ended[0] != past {
		t.Errorf("%v are ended, want first %s and then one more", l.ended, past)
	}
	said := strings.Join(l.warnings, "\n")
	if !strings.Contains(said, "NVIDIA_VISIBLE_DEVICES=all") || !strings.Contains(said, "bytes in the list") {
		t.Errorf("the owners hear %s", said)
	}
}

func TestContainersThatAreOlderThanKubecriStayAndItIsNotConnected(t *testing.T) {
	l := newListing(t)
	l.running = large(8, 600<<10, installed-1)
	text := fmt.Sprint(l.front.Prepare(t.Context()))
	if !strings.Contains(text, "does not split") || !strings.Contains(text, `container "main"`) {
		t.Error(text)
	}
	if len(l.ended) > 0 {
		t.Errorf("%v are ended", l.ended)
	}
}

func TestTheLargestPodsAreEndedWhereTheirSandboxesAreTheReason(t *testing.T) {
	l := newListing(t)
	for i := range 60 {
		pod := l.pod(fmt.Sprint("pod", i), "")
		pod.Annotations["large"] = strings.Repeat("x", 150_000+i)
		l.sandbox = append(l.sandbox, pod)
	}
	l.running = append(l.running, &api.Container{Id: "system", PodSandboxId: "sandbox-pod0", Name: "main"})
	if err := l.front.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	var largest []string
	for i := range l.ended {
		largest = append(largest, fmt.Sprint("sandbox-pod", 59-i))
	}
	slices.Sort(l.ended)
	if len(l.ended) == 0 || len(l.ended) > 40 || !slices.Equal(l.ended, slices.Sorted(slices.Values(largest))) {
		t.Errorf("%v are ended, want the largest", l.ended)
	}
}

func TestSandboxesWithoutContainersAreRemovedFirst(t *testing.T) {
	l := newListing(t)
	for i := range 100 { // of pods that have finished
		pod := l.pod(fmt.Sprint("finished", i), "")
		pod.Annotations["large"] = strings.Repeat("x", 150_000)
		l.sandbox = append(l.sandbox, pod)
	}
	l.sandbox = append(l.sandbox, l.pod("plain", ""))
	l.running = large(3, 250<<10, installed+1)
	if err := l.front.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(l.ended) == 0 || slices.ContainsFunc(l.ended, func(id string) bool {
		return !strings.HasPrefix(id, "sandbox-finished")
	}) {
		t.Errorf("%v are ended, want sandboxes of finished pods alone", l.ended)
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
	l.front.options.Ender = ender(func(ctx context.Context, id string) error {
		if ending.Add(1) == removals {
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
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := l.front.Prepare(ctx); err != nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Error("it takes a minute")
	}
	list, err := l.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list.Sandboxes = slices.DeleteFunc(list.Sandboxes, func(s nrilist.Sandbox) bool { return ended[s.GetId()] })
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
	l.front.options.Ender = ender(func(_ context.Context, id string) error {
		if id == "sandbox-finished0" {
			return errors.New("it hangs")
		}
		removed.Add(1)
		return nil
	})
	err := l.front.Prepare(t.Context())
	if n := removed.Load(); n < 100 {
		t.Errorf("%d are removed, %v", n, err)
	}
}

func TestNoContainerIsWaitedForOfWhichNothingIsKnownYet(t *testing.T) {
	l := newListing(t)
	l.front.options.Admission = unknowing{l.front.options.Admission}
	l.sandbox = append(l.sandbox, l.pod("plain", ""))
	l.running = large(8, 600<<10, installed+1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*inadmissibleTimeout)
	defer cancel()
	if err := l.front.Prepare(ctx); err != nil || len(l.ended) != 2 {
		t.Errorf("%v are ended, %v", l.ended, err)
	}
}

// unknowing is an admission that does not know what to say.
type unknowing struct{ Admission }

func (unknowing) Inspect(ctx context.Context, _ admission.Container) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

func TestAContainerThatCannotBeEndedKeepsKubecriAway(t *testing.T) {
	l := newListing(t)
	l.running, l.failing = large(8, 600<<10, installed+1), errors.New("it hangs")
	if err := l.front.Prepare(t.Context()); err == nil {
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
