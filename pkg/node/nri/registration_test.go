// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	defaultvalidator "github.com/containerd/nri/plugins/default-validator"
	"go.uber.org/goleak"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// The stub of NRI v0.12.3 holds its mutex while it waits to be configured, and its handler of a
// closed connection waits for that mutex: these goroutines stay if a runtime ends in that time.
func TestMain(m *testing.M) {
	const stub = "github.com/containerd/nri/pkg/stub.(*stub)."
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction(stub+"Start"), goleak.IgnoreAnyFunction(stub+"Start.func6"),
		goleak.IgnoreAnyFunction(stub+"connClosed"),
	)
}

// runtime is NRI as container runtimes serve it.
type runtime struct {
	*adaptation.Adaptation
	t *testing.T
}

// startRuntime serves NRI at the socket, with or without the default validator, until stop is
// called.
func startRuntime(t *testing.T, socket string, validates bool) *runtime {
	t.Helper()
	return startRuntimeVersion(t, socket, "2.4.2", validates)
}

func startRuntimeVersion(t *testing.T, socket, version string, validates bool) *runtime {
	t.Helper()
	return startRuntimeWith(t, socket, version, validates, func() {})
}

// startRuntimeWith calls listing before it lists its containers for a plugin.
func startRuntimeWith(t *testing.T, socket, version string, validates bool, listing func()) *runtime {
	t.Helper()
	dir := t.TempDir()
	r := &runtime{t: t}
	var started atomic.Bool // before that, it lists them for plugins that it starts itself
	served, err := adaptation.New("containerd", version,
		func(ctx context.Context, sync adaptation.SyncCB) error {
			if started.Load() {
				listing()
			}
			_, err := sync(ctx, []*api.PodSandbox{{Id: "old"}}, nil)
			return err
		},
		func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil },
		adaptation.WithSocketPath(socket), adaptation.WithPluginPath(filepath.Join(dir, "plugins")),
		adaptation.WithPluginConfigPath(filepath.Join(dir, "conf.d")),
		adaptation.WithDefaultValidator(&defaultvalidator.DefaultValidatorConfig{Enable: validates}))
	if err != nil {
		t.Fatal(err)
	}
	if err := served.Start(); err != nil {
		t.Fatal(err)
	}
	started.Store(true)
	r.Adaptation = served
	t.Cleanup(r.Stop)
	return r
}

// create starts a pod that was bound to a node which publishes that kubecri can be required, and
// creates its container. It returns the runtime's refusal.
func (r *runtime) create() error {
	pod := &api.PodSandbox{Id: "pod", Annotations: deviceinfo.RequirePlugin(nil, []string{"main"})}
	if err := r.RunPodSandbox(r.t.Context(), &api.RunPodSandboxRequest{Pod: pod}); err != nil {
		return err
	}
	container := &api.Container{Id: "container", PodSandboxId: "pod", Name: "main"}
	_, err := r.CreateContainer(r.t.Context(), &api.CreateContainerRequest{Pod: pod, Container: container})
	if err != nil {
		return err
	}
	return r.PostCreateContainer(r.t.Context(), &api.PostCreateContainerRequest{Pod: pod, Container: container})
}

// await waits until the condition holds.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// start keeps kubecri registered until the test ends or stop is called.
func start(t *testing.T, socket string) (r *Registration, stop func()) {
	return startWith(t, socket, nil)
}

// configuration is a runtime's, or why it cannot be read.
type configuration struct {
	settings Settings
	err      error
}

func (c configuration) Settings(context.Context) (Settings, error) { return c.settings, c.err }

func startWith(t *testing.T, socket string, settings SettingsReader) (r *Registration,
	stop func()) {
	r = New(Options{Socket: socket, Settings: settings})
	return r, keep(t, r)
}

// keep runs the registration until the test ends or stop is called.
func keep(t *testing.T, r *Registration) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

func (r *Registration) isRegistered() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.registered
}

// awaitPlugins waits until the runtime has registered kubecri and called the probe.
func (r *runtime) awaitPlugins(registration *Registration) {
	r.t.Helper()
	await(r.t, "kubecri is registered", registration.isRegistered)
	await(r.t, "the probe was called", func() bool {
		if err := r.create(); err != nil && !strings.Contains(err.Error(), "not present") {
			r.t.Fatalf("a container that requires kubecri: %v", err)
		}
		_, known, _ := registration.Enforced()
		return known
	})
}

func TestAContainerThatRequiresKubecriIsRefusedWithoutIt(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nri.sock")
	r := startRuntime(t, socket, true)
	if err := r.create(); err == nil || !strings.Contains(err.Error(), `required plugin "kubedevice" not present`) {
		t.Errorf("before kubecri is there: %v", err)
	}
	registration, stop := start(t, socket)
	if _, known, _ := registration.Enforced(); known {
		t.Error("it is known before a container was created")
	}
	r.awaitPlugins(registration)
	if enforced, _, _ := registration.Enforced(); !enforced {
		t.Error("the validator was not found")
	}
	if err := registration.Check(); err != nil {
		t.Error(err)
	}
	stop()
	await(t, "a container is refused after kubecri has left", func() bool { return r.create() != nil })
}

// The probe is in the way of each container, so it leaves. Kubecri stays.
func TestTheProbeLeavesWhenItWasCalled(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nri.sock")
	relay := newRelay(t, socket)
	r := startRuntime(t, relay.runtime, true)
	registration, _ := start(t, socket)
	r.awaitPlugins(registration)
	if err := r.create(); err != nil {
		t.Error("the first container after the probe:", err)
	}
	await(t, "one of two connections is left", func() bool { return relay.open() == 1 })
}

// A container may be being created while the probe is registered: the runtime determines who
// validates before that, and says that it was created after it.
func TestTheProbeStaysUntilItWasCalled(t *testing.T) {
	left := 0
	probe := &validator{member: newMember(), registration: New(Options{}), leave: func() { left++ }}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // as the connection ends when the probe leaves
	if err := probe.PostCreateContainer(ctx, nil, nil); err != nil || left != 0 {
		t.Errorf("a container that it was not called for: %v, and it left %d times", err, left)
	}
	if err := probe.ValidateContainerAdjustment(ctx, &api.ValidateContainerAdjustmentRequest{}); err != nil {
		t.Error(err)
	}
	if err := probe.PostCreateContainer(ctx, nil, nil); err == nil || left != 1 {
		t.Errorf("after it was called: %v, and it left %d times", err, left)
	}
}

func TestWithoutAValidatorNothingIsEnforced(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nri.sock")
	r := startRuntime(t, socket, false)
	registration, _ := start(t, socket)
	r.awaitPlugins(registration)
	if enforced, _, _ := registration.Enforced(); enforced {
		t.Error("a validator was found")
	}
}

// A runtime's configuration changes when it restarts, so what was known is not known any more.
func TestAnotherRuntimeIsInspectedAgain(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nri.sock")
	relay := newRelay(t, socket)
	registration, _ := start(t, socket) // NRI is not there yet
	if err := registration.Check(); err != nil {
		t.Error(err)
	}
	first := startRuntime(t, relay.runtime, true)
	first.awaitPlugins(registration)
	_, _, changed := registration.Enforced()
	first.Stop()
	relay.cut() // as its process ends
	<-changed
	await(t, "it counts that kubecri is not registered", func() bool { return registration.Check() != nil })
	if enforced, known, _ := registration.Enforced(); !enforced || !known {
		t.Error("what was known is forgotten before there is another runtime")
	}
	second := startRuntime(t, relay.runtime, false)
	second.awaitPlugins(registration)
	if enforced, _, _ := registration.Enforced(); enforced {
		t.Error("the first runtime's validator still counts")
	}
}

// Runtimes before NRI 0.9 end the connection of a plugin that subscribes to what they don't know.
func TestARuntimeThatRefusesTheProbeHasNoValidator(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nri.sock")
	relay := newRelay(t, socket)
	relay.only(1)
	startRuntime(t, relay.runtime, false)
	registration, _ := start(t, socket)
	await(t, "it is known that nothing is enforced", func() bool {
		enforced, known, _ := registration.Enforced()
		return known && !enforced
	})
	if !registration.isRegistered() {
		t.Error("kubecri is not registered")
	}
}

// The first device pod may be bound before there was a container. Where the configuration says
// enough, nothing validates: if that were killed, the next container would be refused.
func TestTheValidatorIsFoundWithoutItsConfiguration(t *testing.T) {
	for name, test := range map[string]struct {
		settings      Settings
		err           error
		validates     bool
		before, after string
	}{
		"it says on":  {Settings{Enabled: true, File: "/c"}, nil, true, "on (by /c)", "on (by /c)"},
		"it says off": {Settings{File: "/c"}, nil, false, "off (by /c): containers", "off (by /c): containers"},
		"it cannot be read": {
			Settings{}, errors.New("no rights"), true,
			"unknown until a container is created (no rights)", "on (seen when a container was created)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "nri.sock")
			relay := newRelay(t, socket)
			registration, _ := startWith(t, socket, // NRI is not there yet
				configuration{test.settings, test.err})
			if got := registration.Validator(); !strings.HasPrefix(got, "unknown") {
				t.Errorf("before it is registered: %s", got)
			}
			r := startRuntime(t, relay.runtime, test.validates)
			await(t, test.before, func() bool { return strings.HasPrefix(registration.Validator(), test.before) })
			if _, known, _ := registration.Enforced(); known != (test.err == nil) {
				t.Errorf("known: %v", known)
			}
			await(t, test.after, func() bool {
				if err := r.create(); err != nil && !strings.Contains(err.Error(), "not present") {
					t.Fatal(err)
				}
				return strings.HasPrefix(registration.Validator(), test.after)
			})
			if enforced, known, _ := registration.Enforced(); !known || enforced != test.validates {
				t.Errorf("enforced %v, known %v", enforced, known)
			}
			await(t, "one connection is left", func() bool { return relay.open() == 1 })
		})
	}
}

// listCheck is a ListChecker.
type listCheck func(context.Context) error

// Check implements ListChecker.
func (l listCheck) Check(ctx context.Context) error { return l(ctx) }

func TestTheProbeWaitsUntilTheRuntimeCanSendItsList(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nri.sock")
	relay := newRelay(t, socket)
	runtime := startRuntime(t, relay.runtime, true)
	var calls atomic.Int32
	var smaller atomic.Bool
	registration := New(Options{Socket: socket, List: listCheck(func(context.Context) error {
		if calls.Add(1) == 1 || smaller.Load() { // the first call is for kubecri's own registration
			return nil
		}
		return errors.New("it cannot send its list")
	})})
	keep(t, registration)
	await(t, "it is known why there is no probe", func() bool {
		return strings.Contains(registration.Validator(), "it cannot send its list")
	})
	if n := relay.connections(); n != 1 {
		t.Errorf("%d connections, want kubecri's alone", n)
	}
	smaller.Store(true)
	runtime.awaitPlugins(registration)
	if enforced, _, _ := registration.Enforced(); !enforced {
		t.Error("the validator was not found")
	}
}

// No goroutine is left behind, see TestMain.
func TestARuntimeThatNeverAnswersIsLeft(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nri.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, stop := start(t, socket)
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stop()
}

// relay passes connections on to a runtime, and counts them.
type relay struct {
	runtime string // the runtime's own socket

	mu      sync.Mutex
	allowed int // how many connections are passed on at a time; 0 for any number
	conns   map[net.Conn]bool
	passed  int // connections so far
}

func newRelay(t *testing.T, socket string) *relay {
	f := &relay{runtime: filepath.Join(t.TempDir(), "runtime.sock"), conns: map[net.Conn]bool{}}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { f.serve(conn) })
		}
	})
	t.Cleanup(func() { listener.Close(); f.cut(); serving.Wait() })
	return f
}

func (f *relay) only(allowed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.allowed = allowed
}

func (f *relay) open() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns)
}

// connections returns how many were passed on so far.
func (f *relay) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.passed
}

// cut ends all connections.
func (f *relay) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for conn := range f.conns {
		conn.Close()
	}
}

// serve passes one connection on, if it may.
func (f *relay) serve(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("unix", f.runtime)
	if err != nil {
		return
	}
	defer to.Close()
	if !f.admit(from) {
		return
	}
	defer f.forget(from)
	var copying sync.WaitGroup
	defer copying.Wait()
	copying.Go(func() {
		io.Copy(to, from) //nolint:errcheck // a broken connection ends
		to.Close()
	})
	io.Copy(from, to) //nolint:errcheck // a broken connection ends
	from.Close()
}

func (f *relay) admit(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.allowed > 0 && len(f.conns) == f.allowed {
		return false
	}
	f.conns[conn] = true
	f.passed++
	return true
}

func (f *relay) forget(conn net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, conn)
}
