// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifrontend

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/kubedevice/kubedevice/pkg/node/nribound"
	"github.com/kubedevice/kubedevice/pkg/node/nrilist"
)

// annotated returns the sandbox of a live pod with an annotation of that many bytes.
func (f *fixture) annotated(uid string, bytes int) *api.PodSandbox {
	f.t.Helper()
	pod := f.pod(uid, "")
	pod.Annotations["large"] = strings.Repeat("x", bytes)
	return pod
}

// run has the runtime run the sandbox, which it has from then on if it is not refused.
func (f *fixture) run(pod *api.PodSandbox) error {
	f.t.Helper()
	err := f.runtime.RunPodSandbox(f.t.Context(), &api.RunPodSandboxRequest{Pod: pod})
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.sandbox = append(f.sandbox, pod)
	}
	return err
}

// removes has what is ended go from the runtime.
func (f *fixture) removes() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end = func(id string) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.sandbox = slices.DeleteFunc(f.sandbox, func(s *api.PodSandbox) bool { return s.GetId() == id })
		return nil
	}
}

func TestLargeSandboxesAreBoundedTogetherAndSmallOnesAreNot(t *testing.T) {
	f := newFixture(t)
	var there []*api.PodSandbox
	for i := range nribound.MaxSandboxes / 250_000 {
		there = append(there, f.annotated(fmt.Sprint("there", i), 250_000))
	}
	f.mu.Lock()
	f.sandbox = there
	f.mu.Unlock()
	f.start()
	err := f.run(f.annotated("large", 250_000))
	if err == nil || !strings.Contains(err.Error(), "pods that have ended") {
		t.Errorf("one more large sandbox: %v", err)
	}
	if err := f.run(f.annotated("small", nribound.SmallSandbox/2)); err != nil {
		t.Errorf("a small one: %v", err)
	}
	gone := &api.RemovePodSandboxRequest{Pod: there[0]}
	if err := f.runtime.RemovePodSandbox(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	if err := f.run(f.annotated("large", 240_000)); err != nil {
		t.Errorf("a large one after another was removed: %v", err)
	}
}

func TestNoPodWaitsForAListOfAllSandboxes(t *testing.T) {
	f := newFixture(t)
	f.start()
	for i := range 10 {
		if err := f.run(f.annotated(fmt.Sprint("pod", i), 100_000)); err != nil {
			t.Fatal(err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listings > 0 {
		t.Errorf("the runtime has listed its sandboxes %d times", f.listings)
	}
}

func TestPodsThatHaveEndedMakeRoomForTheSandboxesOfOthers(t *testing.T) {
	f := newFixture(t)
	f.removes()
	refused := make(chan struct{})
	remove := f.end
	f.end = func(id string) error {
		<-refused
		return remove(id)
	}
	add := func(uid, namespace string, bytes int, live bool) {
		pod := f.annotated(uid, bytes)
		f.mu.Lock()
		defer f.mu.Unlock()
		pod.Namespace, f.live[uid] = namespace, live
		f.sandbox = append(f.sandbox, pod)
	}
	for i := range 900 {
		add(fmt.Sprint("finished", i), "tenant", 11<<10, false)
	}
	for i := range 5 {
		add(fmt.Sprint("other", i), "default", 100_000, false)
		add(fmt.Sprint("running", i), "tenant", 100_000, true)
	}
	f.start()
	large := f.annotated("large", 20<<10)
	if err := f.run(large); err == nil {
		t.Error("a large sandbox is not refused while there is no room")
	}
	close(refused)
	await(t, "there is room", func() bool { return f.run(large) == nil })
	await(t, "no more is removed", func() bool {
		f.frontend.mu.Lock()
		defer f.frontend.mu.Unlock()
		return !f.frontend.removing
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ended) == 0 || len(f.ended) > 700 || len(f.warnings) != len(f.ended) {
		t.Errorf("%d are removed, with %d events", len(f.ended), len(f.warnings))
	}
	for _, id := range f.ended {
		if !strings.HasPrefix(id, "sandbox-finished") {
			t.Errorf("%s is removed, want sandboxes of the namespace that takes the most, and none that is ready", id)
		}
	}
}

// finished returns so many sandboxes of pods that have finished, which are just not large.
func (f *fixture) finished(n int) (list []*api.PodSandbox) {
	f.t.Helper()
	for i := range n {
		pod := f.annotated(fmt.Sprint("finished", i), nribound.SmallSandbox-200)
		f.mu.Lock()
		f.live[pod.GetUid()] = false
		f.mu.Unlock()
		list = append(list, pod)
	}
	return list
}

// awaitRoom waits until finished sandboxes are removed down to room, and checks that not more are.
func (f *fixture) awaitRoom(finished int) {
	f.t.Helper()
	await(f.t, "there is room", func() bool { return f.frontend.sizes.sandboxesSum() <= sandboxTarget })
	await(f.t, "no more is removed", func() bool {
		f.frontend.mu.Lock()
		defer f.frontend.mu.Unlock()
		return !f.frontend.removing
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if left, fit := finished-len(f.ended), sandboxTarget/nribound.SmallSandbox; left < fit-1 {
		f.t.Errorf("%d are left, and %d fit", left, fit)
	}
}

func TestSmallSandboxesOfPodsThatHaveEndedAreRemovedToo(t *testing.T) {
	f := newFixture(t)
	f.removes()
	f.start()
	const many = nribound.MaxSandboxes/nribound.SmallSandbox + 20
	for _, pod := range f.finished(many) {
		if err := f.run(pod); err != nil {
			t.Fatal(err)
		}
	}
	f.awaitRoom(many)
}

func TestThereIsRoomSoonAfterTheRegistration(t *testing.T) {
	f := newFixture(t)
	f.removes()
	const many = nribound.MaxSandboxes/nribound.SmallSandbox + 20
	finished := f.finished(many)
	f.mu.Lock()
	f.sandbox = finished
	f.mu.Unlock()
	f.start()
	f.awaitRoom(many)
}

func TestSandboxesAreRemovedInTheOrderOfTheirNamespacesSums(t *testing.T) {
	var list []nrilist.Sandbox
	for _, s := range []struct {
		namespace string
		size      int
	}{{"a", 1}, {"b", 5}, {"a", 4}, {"c", 0}, {"a", 2}, {"b", 3}} {
		list = append(list, nrilist.Sandbox{
			PodSandbox: &api.PodSandbox{Namespace: s.namespace}, Size: nribound.Size{Bytes: s.size},
		})
	}
	var order []string
	for _, s := range removalOrder(list) {
		order = append(order, fmt.Sprint(s.GetNamespace(), s.Size.Bytes))
	}
	if got := strings.Join(order, " "); got != "b5 a4 a2 b3 a1 c0" && got != "b5 a4 b3 a2 a1 c0" {
		t.Error(got)
	}
}

// Another plugin may refuse a pod that kubecri has counted.
func TestSandboxesThatTheRuntimeDoesNotHaveAreForgotten(t *testing.T) {
	f := newFixture(t)
	f.start()
	refused := func(i int) error {
		pod := f.annotated(fmt.Sprint("refused", i), 250_000)
		return f.runtime.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: pod})
	}
	for i := range nribound.MaxSandboxes / 250_000 {
		if err := refused(i); err != nil {
			t.Fatal(err)
		}
	}
	large := f.annotated("large", 250_000)
	if err := f.run(large); err == nil {
		t.Error("what kubecri has counted does not count")
	}
	await(t, "there is room", func() bool { return f.run(large) == nil })
}

func TestSandboxesThatAreReadyOrWereJustNowOrAreOlderThanKubecriStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{t: t, live: map[string]bool{}, end: func(string) error { return nil }}
		frontend := New(t.Context(), Options{Source: f, Ender: ender(f.ending), Key: f, Events: f})
		defer frontend.Close()
		for uid, ready := range map[string]bool{
			"running": true, "starting": false, "ending": true, "ended": false, "ended-older": false,
		} {
			f.sandbox = append(f.sandbox, f.annotated(uid, sandboxTarget)) // each alone is too much
			f.live[uid] = ready
		}
		f.older = map[string]bool{"sandbox-ended-older": true}
		frontend.sizes.replace(f.sandbox, nil)
		go func() {
			time.Sleep(settleTime / 2)
			f.mu.Lock()
			defer f.mu.Unlock()
			f.live["ending"], f.live["starting"] = false, true
		}()
		if err := frontend.removeEnded(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(f.ended, []string{"sandbox-ended"}) {
			t.Errorf("%v are removed", f.ended)
		}
	})
}
