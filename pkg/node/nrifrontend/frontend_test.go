// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifrontend

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/admission"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
)

// machine is the host filesystem of this machine.
type machine struct{}

func (machine) Lstat(path string) (fs.FileInfo, error) { return os.Lstat(path) }

func (machine) Readlink(path string) (string, error) { return os.Readlink(path) }

func (machine) ReadDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(path) }

// devicesIn returns the paths of the devices that are added.
func devicesIn(a *api.ContainerAdjustment) (paths []string) {
	for _, d := range a.GetLinux().GetDevices() {
		paths = append(paths, d.GetPath())
	}
	return paths
}

func envIn(a *api.ContainerAdjustment) map[string]string {
	set := map[string]string{}
	for _, env := range a.GetEnv() {
		set[env.GetKey()] = env.GetValue()
	}
	return set
}

func TestAContainerGetsExactlyItsDevicesEachTimeItIsCreated(t *testing.T) {
	f := newFixture(t)
	f.plugin.answers()
	f.start()
	first, second := f.pod("first", card0), f.pod("second", card1)
	for range 2 {
		for pod, want := range map[*api.PodSandbox]string{first: "/dev/null", second: "/dev/zero"} {
			adjustment, err := f.create(pod, "CARDS=all")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{want}, devicesIn(adjustment)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", pod.GetName(), diff)
			}
			if got := envIn(adjustment)["CARDS"]; got == "" || got == "all" {
				t.Errorf("%s: the plugin's variable is %q", pod.GetName(), got)
			}
		}
	}
	if got := len(f.checkpoint.List()); got != 2 {
		t.Errorf("%d pods hold devices", got)
	}
}

func TestAContainerWithoutDevicesIsKeptFromThem(t *testing.T) {
	f := newFixture(t)
	f.start()
	adjustment, err := f.create(f.pod("plain", ""), "NVIDIA_VISIBLE_DEVICES=all")
	if err != nil {
		t.Fatal(err)
	}
	if len(devicesIn(adjustment)) > 0 || envIn(adjustment)["NVIDIA_VISIBLE_DEVICES"] != "void" {
		t.Errorf("it gets %v", adjustment)
	}
}

func TestTheRuntimeRefusesAsAdmissionDoes(t *testing.T) {
	f := newFixture(t)
	f.start()
	_, err := f.create(f.pod("unscheduled", ""))
	if err == nil || !strings.Contains(err.Error(), "kubecri: ") {
		t.Errorf("a pod that requests a device and was allocated none: %v", err)
	}
}

// The runtime would drop a plugin that answers late, and start the container without its device.
func TestALatePluginIsWaitedForByTryingAgain(t *testing.T) {
	f := newFixture(t)
	f.start()
	pod := f.pod("first", card0)
	for range 2 {
		if _, err := f.create(pod); err == nil || !strings.Contains(err.Error(), "have not answered yet") {
			t.Fatalf("while the plugin has not answered: %v", err)
		}
	}
	f.plugin.answer <- struct{}{}
	await(t, "the container is created", func() bool {
		adjustment, err := f.create(pod)
		return err == nil && len(devicesIn(adjustment)) == 1
	})
	if called := f.plugin.called(); len(called) != 1 {
		t.Errorf("the plugin was called %d times", len(called))
	}
	if plain, err := f.create(f.pod("plain", ""), "NVIDIA_VISIBLE_DEVICES=all"); err != nil || len(envIn(plain)) == 0 {
		t.Errorf("kubecri is not called any more: %v, %v", plain, err)
	}
}

func TestPluginsAreCalledWhenTheSandboxRuns(t *testing.T) {
	f := newFixture(t)
	f.start()
	pod := f.pod("first", card0)
	if err := f.runtime.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: pod}); err != nil {
		t.Fatal(err)
	}
	await(t, "the plugin is called", func() bool { return len(f.plugin.called()) == 1 })
	f.plugin.answer <- struct{}{}
	if _, err := f.create(pod); err != nil {
		t.Fatal(err)
	}
	// An answer is used once.
	f.plugin.answers()
	if _, err := f.create(pod); err != nil {
		t.Fatal(err)
	}
	if called := f.plugin.called(); len(called) != 2 {
		t.Errorf("the plugin was called %d times for two creations", len(called))
	}
}

// The runtime's lists do not have what a plugin adds.
func TestTheCheckpointComesBackFromWhatNRIReports(t *testing.T) {
	f := newFixture(t)
	f.plugin.answers()
	f.start()
	pod := f.pod("first", card0)
	adjustment, err := f.create(pod)
	if err != nil {
		t.Fatal(err)
	}
	encoded := adjustment.GetAnnotations()[grants.Annotation]
	if encoded == "" {
		t.Fatal("the container has no annotation")
	}
	id := fmt.Sprintf("container-%d", f.number)
	container := &api.Container{Id: id, PodSandboxId: pod.GetId(), Name: "main"}
	listed := listOf{"first": {Live: true, Containers: []grants.RuntimeContainer{
		{ID: id, Name: "main"}, {ID: "another", Name: "side"},
	}}}
	states, err := f.view.Runtime(listed).Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []grants.RuntimeContainer{{ID: id, Name: "main", Encoded: encoded}}
	if diff := cmp.Diff(want, states["first"].Containers); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	err = f.runtime.RemoveContainer(t.Context(), &api.RemoveContainerRequest{Pod: pod, Container: container})
	if err != nil {
		t.Fatal(err)
	}
	if states, err = f.view.Runtime(listed).Pods(t.Context()); err != nil || len(states["first"].Containers) > 0 {
		t.Errorf("after its removal: %v, %v", states, err)
	}
}

func TestContainersThatWereStartedWhileKubecriWasAwayAreEndedBeforeOthersGetDevices(t *testing.T) {
	f := newFixture(t)
	f.plugin.answers()
	started := func(pod *api.PodSandbox, id string, env ...string) {
		f.sandbox = append(f.sandbox, pod)
		f.running = append(f.running, &api.Container{
			Id: id, PodSandboxId: pod.GetId(), Name: "main", State: api.ContainerState_CONTAINER_RUNNING, Env: env,
		})
	}
	started(f.pod("first", card0), "without-its-device")
	started(f.pod("unscheduled", ""), "requests-a-device")
	started(f.pod("plain", ""), "past-the-scheduler", "NVIDIA_VISIBLE_DEVICES=all")
	started(f.pod("plain", ""), "innocent", "NVIDIA_VISIBLE_DEVICES=void")
	static := f.pod("static", "")
	static.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	started(static, "static", "NVIDIA_VISIBLE_DEVICES=all")
	started(f.pod("older", card0), "older-than-kubecri")
	f.running[len(f.running)-1].CreatedAt = (installed - 1) * int64(time.Second)
	started(f.pod("forged", card0), "with-a-forged-grant")
	started(f.pod("plain", ""), "past-it-with-a-forged-grant", "NVIDIA_VISIBLE_DEVICES=all")
	for _, c := range f.running[len(f.running)-2:] {
		c.Annotations = map[string]string{grants.Annotation: "v1.AAAA.{}"}
	}
	f.running[0].CreatedAt = (installed + 1) * int64(time.Second)
	stopping := make(chan error)
	f.end = func(string) error { return <-stopping }
	f.start()
	second := f.pod("second", card1)
	stopping <- errors.New("the runtime is busy")
	devices := f.frontend.options.Devices
	devices.mu.Lock()
	held := devices.held
	devices.mu.Unlock()
	select {
	case <-held.refused:
	default:
		t.Error("a container is ended while others may wait for that, and the runtime for them")
	}
	if _, err := f.create(second); err == nil || !strings.Contains(err.Error(), "still being inspected") {
		t.Errorf("a container gets a device before others are ended: %v", err)
	}
	close(stopping)
	await(t, "a container gets its device", func() bool { _, err := f.create(second); return err == nil })
	f.mu.Lock()
	defer f.mu.Unlock()
	ended := map[string]bool{}
	for _, id := range f.ended {
		ended[id] = true
	}
	want := map[string]bool{"without-its-device": true, "requests-a-device": true, "past-the-scheduler": true,
		"with-a-forged-grant": true, "past-it-with-a-forged-grant": true}
	if diff := cmp.Diff(want, ended); diff != "" {
		t.Errorf("ended (-want +got):\n%s", diff)
	}
	if len(f.warnings) < len(want) || !strings.Contains(f.warnings[0], "started while kubecri was away") {
		t.Errorf("the owners hear %q", f.warnings)
	}
}

// The runtime would end none while one waits.
func TestNoContainerWaitsForDevicesWhileOthersAreEnded(t *testing.T) {
	d := NewDevices(t.Context(), nil)
	defer d.Close()
	release, refuse := d.hold()
	waited := make(chan error, 1)
	go func() {
		_, err := d.Allocate(t.Context(), plugins.Claim{})
		waited <- err
	}()
	refuse()
	if err := <-waited; !errors.Is(err, errHeld) {
		t.Errorf("one that waited: %v", err)
	}
	if _, err := d.Allocate(t.Context(), plugins.Claim{}); !errors.Is(err, errHeld) {
		t.Errorf("another one: %v", err)
	}
	release()
	if err := d.held.wait(t.Context()); err != nil {
		t.Errorf("after they have ended: %v", err)
	}
}

// listOf is a runtime that lists this.
type listOf map[string]grants.RuntimeState

func (l listOf) Pods(context.Context) (map[string]grants.RuntimeState, error) {
	return maps.Clone(l), nil
}

// hung is an admission that does not end in time, even when its context is done.
type hung struct {
	Admission
	ending chan struct{}
	ended  *atomic.Bool
}

func (h hung) Admit(context.Context, admission.Container) (*runtimeapi.ContainerConfig, error) {
	<-h.ending
	h.ended.Store(true)
	return nil, nil
}

func TestTheRuntimeIsAnsweredInTimeWhenACallHangs(t *testing.T) {
	h := hung{ending: make(chan struct{}), ended: &atomic.Bool{}}
	frontend := New(t.Context(), Options{Admission: h})
	defer frontend.Close()
	defer close(h.ending)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	_, err := frontend.CreateContainer(ctx, &api.PodSandbox{}, &api.Container{Id: "c"})
	if err == nil || !strings.Contains(err.Error(), "tried again") || ctx.Err() != nil {
		t.Errorf("answered with %v, in time: %v", err, ctx.Err() == nil)
	}
	if err := frontend.Check(); err != nil {
		t.Error(err)
	}
	frontend.Drain() // the runtime was answered
	_, err = frontend.CreateContainer(t.Context(), &api.PodSandbox{}, &api.Container{Id: "d"})
	if err == nil || !strings.Contains(err.Error(), "kubecri ends") {
		t.Errorf("a container while kubecri ends: %v", err)
	}
	frontend.mu.Lock()
	frontend.deciding["u/main"] = decision{"c", time.Now().Add(-2 * stuckTimeout)}
	frontend.mu.Unlock()
	if err := frontend.Check(); err == nil || !strings.Contains(err.Error(), "container c") {
		t.Errorf("a decision that hangs is healthy: %v", err)
	}
}

// waiting is admission that waits for as long as it may.
type waiting struct{ Admission }

func (waiting) Admit(ctx context.Context, _ admission.Container) (*runtimeapi.ContainerConfig, error) {
	<-ctx.Done()
	return nil, unavailable(ctx.Err())
}

func TestTheRuntimeWaitsForLessThanASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hung{ending: make(chan struct{}), ended: &atomic.Bool{}}
		for name, slow := range map[string]Admission{"a wait": waiting{}, "a disk that hangs": h} {
			frontend := New(t.Context(), Options{Admission: slow})
			defer frontend.Close()
			began := time.Now()
			_, err := frontend.CreateContainer(t.Context(), &api.PodSandbox{}, &api.Container{Id: "c"})
			if status.Code(err) != codes.Unavailable {
				t.Errorf("%s: %v, want that the container is tried again", name, err)
			}
			if took := time.Since(began); took > 900*time.Millisecond {
				t.Errorf("%s: answered after %v, want at most 900 ms", name, took)
			}
		}
		close(h.ending)
	})
}

func TestTriesOfAContainerDoNotPileUp(t *testing.T) {
	h := hung{ending: make(chan struct{}), ended: &atomic.Bool{}}
	frontend := New(t.Context(), Options{Admission: h})
	defer frontend.Close()
	defer close(h.ending)
	try := func(uid, name, id string) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := frontend.CreateContainer(ctx, &api.PodSandbox{Uid: uid}, &api.Container{Id: id, Name: name})
		if status.Code(err) != codes.Unavailable {
			t.Errorf("container %s: %v, want that it is tried again", id, err)
		}
	}
	try("u", "main", "1")
	try("u", "main", "2")
	try("u", "other", "3")
	try("v", "main", "4")
	frontend.mu.Lock()
	defer frontend.mu.Unlock()
	var ids []string
	for _, d := range frontend.deciding {
		ids = append(ids, d.id)
	}
	slices.Sort(ids)
	if !slices.Equal(ids, []string{"1", "3", "4"}) {
		t.Errorf("decisions about %q run, want one for each container of each pod", ids)
	}
}

func TestKubecriAnswersThoseInFlightBeforeItLeaves(t *testing.T) {
	h := hung{ending: make(chan struct{}), ended: &atomic.Bool{}}
	frontend := New(t.Context(), Options{Admission: h})
	defer frontend.Close()
	is := func(condition func() bool) func() bool {
		return func() bool {
			frontend.mu.Lock()
			defer frontend.mu.Unlock()
			return condition()
		}
	}
	answered := make(chan error, 1)
	go func() {
		_, err := frontend.CreateContainer(t.Context(), &api.PodSandbox{}, &api.Container{Id: "c"})
		answered <- err
	}()
	await(t, "the container is in flight", is(func() bool { return len(frontend.deciding) == 1 }))
	go func() {
		await(t, "kubecri is about to end", is(func() bool { return frontend.draining }))
		close(h.ending)
	}()
	frontend.Drain()
	if !h.ended.Load() {
		t.Error("it leaves before it has decided")
	}
	if err := <-answered; err != nil {
		t.Errorf("the container in flight: %v", err)
	}
}
