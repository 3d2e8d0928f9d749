// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// recorder is a handler that accepts containers until it is to be late: then it is late for one,
// and refuses all others.
type recorder struct {
	late chan struct{} // closed when it need not be late any more

	mu           sync.Mutex
	created      int
	toBeLate     bool
	answer       *api.ContainerAdjustment
	refusal      error // instead of an answer
	wasLate      bool
	synchronized []int // how many pods there were
	left         int
}

func (r *recorder) Synchronize(_ context.Context, pods []*api.PodSandbox, _ []*api.Container) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.synchronized = append(r.synchronized, len(pods))
	return nil
}

func (r *recorder) CreateContainer(
	context.Context, *api.PodSandbox, *api.Container,
) (*api.ContainerAdjustment, error) {
	r.mu.Lock()
	r.created++
	accepts, late := !r.toBeLate, r.toBeLate && !r.wasLate
	r.wasLate = r.toBeLate
	answer, refusal := r.answer, r.refusal
	r.mu.Unlock()
	if refusal != nil {
		return nil, refusal
	}
	if accepts {
		return answer, nil
	}
	if late {
		<-r.late
	}
	return nil, errors.New("no more containers")
}

func (*recorder) Prepare(context.Context) error { return nil }

func (*recorder) RunPodSandbox(context.Context, *api.PodSandbox) error { return nil }

func (*recorder) PostCreateContainer(context.Context, *api.PodSandbox, *api.Container) error {
	return nil
}

func (*recorder) StopContainer(context.Context, *api.PodSandbox, *api.Container) error { return nil }

func (*recorder) RemoveContainer(context.Context, *api.PodSandbox, *api.Container) error { return nil }

func (*recorder) RemovePodSandbox(context.Context, *api.PodSandbox) error { return nil }

func (r *recorder) Left() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left++
}

func (r *recorder) calls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.created
}

func (r *recorder) beLate() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.toBeLate = true
}

func (r *recorder) addBytes(count int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = &api.ContainerAdjustment{Annotations: map[string]string{"large": strings.Repeat("x", count)}}
}

func (r *recorder) refuse(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusal = cause
}

func (r *recorder) connections() (synchronized []int, left int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.synchronized, r.left
}

// startHandling keeps kubecri registered, with a handler, until the test ends.
func startHandling(t *testing.T, socket string) (*Registration, *recorder) {
	t.Helper()
	handler := &recorder{late: make(chan struct{})}
	r := New(Options{Socket: socket, Handler: handler})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() { close(handler.late); cancel(); running.Wait() })
	return r, handler
}

// startConnected starts a runtime at which kubecri is registered, and whose probe has left. before
// is how many connections had ended then: kubecri tries before there is a runtime, too.
func startConnected(t *testing.T, socket string) (r *runtime, handler *recorder, before int) {
	t.Helper()
	registration, handler := startHandling(t, socket)
	r = startRuntime(t, socket, false)
	await(t, "kubecri is registered", registration.isRegistered)
	await(t, "the probe has left", func() bool {
		if err := r.create(); err != nil {
			t.Fatal("a container that is accepted:", err)
		}
		_, known, _ := registration.Enforced()
		return known
	})
	_, before = handler.connections()
	return r, handler, before
}

func TestAHandlerThatIsDroppedForBeingLateIsRegisteredAgain(t *testing.T) {
	adaptation.SetPluginRequestTimeout(3 * time.Second)
	t.Cleanup(func() { adaptation.SetPluginRequestTimeout(adaptation.DefaultPluginRequestTimeout) })
	socket := filepath.Join(t.TempDir(), "nri.sock")
	registration, handler := startHandling(t, socket)
	if err := registration.Check(); err == nil || !strings.Contains(err.Error(), "does not call it") {
		t.Errorf("before there is a runtime: %v", err)
	}
	var registrations atomic.Int32 // twice kubecri and its probe
	r := startRuntimeWith(t, socket, "2.4.2", false, func() { registrations.Add(1) })
	await(t, "kubecri is registered", registration.isRegistered)
	// Until it is known, the probe is there, which ends with the connection: a container that is
	// just being created is then refused.
	await(t, "the handler is called for containers, and the probe has left", func() bool {
		if err := r.create(); err != nil {
			t.Fatal("a container that is accepted:", err)
		}
		_, known, _ := registration.Enforced()
		return handler.calls() > 0 && known
	})
	handler.beLate()
	if err := r.create(); err == nil || !strings.Contains(err.Error(), "kubedevice failed") {
		t.Error("a container that kubecri was late for:", err)
	}
	await(t, "it is registered again", func() bool {
		synchronized, left := handler.connections()
		return len(synchronized) > 1 && synchronized[len(synchronized)-1] == 1 && left > 0
	})
	await(t, "the runtime calls it again", func() bool {
		err := r.create()
		return err != nil && strings.Contains(err.Error(), "no more containers")
	})
	// The runtime's library has a race if the connection ends earlier.
	await(t, "the probe is registered again", func() bool { return registrations.Load() == 4 })
	if err := registration.Check(); err != nil {
		t.Error(err)
	}
}

// The runtime finds out that the connection has ended when it calls.
func TestTheFirstContainerAfterKubecriHasLeftIsRefused(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nri.sock")
	handler := &recorder{}
	registration := New(Options{Socket: socket, Handler: handler})
	stop := keep(t, registration)
	r := startRuntime(t, socket, true)
	r.awaitPlugins(registration)
	stop()
	create := func(annotations map[string]string) error {
		pod := &api.PodSandbox{Id: "pod", Annotations: annotations}
		c := &api.Container{Id: "container", PodSandboxId: "pod", Name: "main"}
		_, err := r.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: pod, Container: c})
		return err
	}
	requiring := deviceinfo.RequirePlugin(nil, []string{"main"})
	if err := create(requiring); err == nil || !strings.Contains(err.Error(), "kubedevice failed") {
		t.Error("the first container:", err)
	}
	if err := create(requiring); err == nil || !strings.Contains(err.Error(), "not present") {
		t.Error("the second one:", err)
	}
	if err := create(nil); err != nil {
		t.Error("one that does not require kubecri:", err)
	}
}

// A container that gets long to stop delays the registration, and all containers that are created
// meanwhile. They are created when the registration has ended, in any way.
func TestKubecriWaitsAsLongAsTheRuntimeThatHasAcceptedIt(t *testing.T) {
	before := accepting
	accepting = time.Second
	t.Cleanup(func() { accepting = before })
	socket := filepath.Join(t.TempDir(), "nri.sock")
	listing, stopped := make(chan struct{}), make(chan struct{})
	var first sync.Once
	r := startRuntimeWith(t, socket, "2.4.2", false, func() { first.Do(func() { close(listing); <-stopped }) })
	registration, handler := startHandling(t, socket)
	<-listing
	time.Sleep(2 * accepting)
	close(stopped)
	await(t, "kubecri is registered", registration.isRegistered)
	await(t, "kubecri is called", func() bool { return r.create() == nil && handler.calls() > 0 })
	if _, left := handler.connections(); left > 0 {
		t.Errorf("%d connections have ended", left)
	}
}

func TestAnAnswerThatNRIDoesNotTransportIsAnErrorInsteadAndTheConnectionStays(t *testing.T) {
	adaptation.SetPluginRequestTimeout(20 * time.Second) // a busy machine takes its time for megabytes
	t.Cleanup(func() { adaptation.SetPluginRequestTimeout(adaptation.DefaultPluginRequestTimeout) })
	socket := filepath.Join(t.TempDir(), "nri.sock")
	r, handler, before := startConnected(t, socket)
	for bytes, refused := range map[int]bool{3 << 20: false, 4<<20 - 1<<10: true, 5 << 20: true} {
		handler.addBytes(bytes)
		err := r.create()
		if refused != (err != nil && strings.Contains(err.Error(), "NRI transports at most")) {
			t.Errorf("an answer of %d bytes: %v", bytes, err)
		}
	}
	if synchronized, left := handler.connections(); len(synchronized) != 1 || left != before {
		t.Errorf("kubecri was registered %d times, and dropped %d times", len(synchronized), left-before)
	}
}

// A device plugin may say anything, and the runtime would create the container without kubecri.
func TestAnErrorThatIsNoTextIsSentAsTextAndTheConnectionStays(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nri.sock")
	r, handler, before := startConnected(t, socket)
	for _, cause := range []error{
		errors.New("no GPU \xff\xfe"), status.Error(codes.Unavailable, "no GPU \xff\xfe"),
	} {
		handler.refuse(cause)
		if err := r.create(); err == nil || !strings.Contains(err.Error(), "no GPU \uFFFD") {
			t.Errorf("refused with %q: %v", cause, err)
		}
	}
	if synchronized, left := handler.connections(); len(synchronized) != 1 || left != before {
		t.Errorf("kubecri was registered %d times, and dropped %d times", len(synchronized), left-before)
	}
}

func TestARuntimeThatIsTooOldIsNotServed(t *testing.T) {
	for name, test := range map[string]struct{ runtime, version, want string }{
		"containerd 2.2":       {"containerd", "v2.2.0", ""},
		"a build of CRI-O":     {"cri-o", "1.34.1-dev", ""},
		"containerd 2.1":       {"containerd", "v2.1.6", "upgrade it to 2.2"},
		"CRI-O 1.33":           {"cri-o", "1.33.8", "upgrade it to 1.34"},
		"another runtime":      {"made-up", "9.9", "is not known"},
		"one without a number": {"containerd", "unknown", "its version is"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := requestPlugin{member: newMember()}.Configure(t.Context(), "", test.runtime, test.version)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}
