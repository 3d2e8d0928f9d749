// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestRegistrationsThatCannotBeAreRefusedAsUsersKnowIt(t *testing.T) {
	h := startManager(t, tempDirectory(t))
	startPlugin(t, h.socket("p.sock"))
	startPlugin(t, h.socket("p%41?a=b#c d.sock"))
	for name, test := range map[string]struct {
		version, endpoint, resource string
		code                        codes.Code
		want                        string
	}{
		"another API version": {"v1alpha", "p.sock", "a.b/c", codes.InvalidArgument,
			`API version "v1alpha" is not supported`},
		"no API version": {"", "p.sock", "a.b/c", codes.InvalidArgument,
			`API version "" is not supported`},
		"a resource without a domain": {"v1beta1", "p.sock", "gpu", codes.InvalidArgument,
			`the resource name "gpu" is invalid`},
		"a resource of Kubernetes": {"v1beta1", "p.sock", "kubernetes.io/gpu", codes.InvalidArgument,
			"is invalid"},
		"a resource of quotas":    {"v1beta1", "p.sock", "requests.a.b/c", codes.InvalidArgument, "is invalid"},
		"a resource with a space": {"v1beta1", "p.sock", "a.b/c d", codes.InvalidArgument, "is invalid"},
		"a socket elsewhere": {"v1beta1", "../p.sock", "a.b/c", codes.InvalidArgument,
			`endpoint "../p.sock" is not the name of a plugin's socket`},
		"a socket of another way to it": {"v1beta1", "x/../p.sock", "a.b/e", codes.OK, ""},
		"an absolute path":              {"v1beta1", "/p.sock", "a.b/c", codes.InvalidArgument, "is not the name"},
		"no socket":                     {"v1beta1", "", "a.b/c", codes.InvalidArgument, "is not the name"},
		"the directory":                 {"v1beta1", ".", "a.b/c", codes.InvalidArgument, "is not the name"},
		"the directory above":           {"v1beta1", "..", "a.b/c", codes.InvalidArgument, "is not the name"},
		"kubecri's own socket":          {"v1beta1", "kubelet.sock", "a.b/c", codes.InvalidArgument, "is not the name"},
		"a plugin that is as it should": {"v1beta1", "p.sock", "a.b/c", codes.OK, ""},
		"a socket of a strange name":    {"v1beta1", "p%41?a=b#c d.sock", "a.b/d", codes.OK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := register(t, h.Manager, &pluginapi.RegisterRequest{Version: test.version, Endpoint: test.endpoint,
				ResourceName: test.resource})
			if status.Code(err) != test.code || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("the answer is %v, want %v with %q", err, test.code, test.want)
			}
		})
	}
}

func TestAPluginThatDoesNotAnswerIsNotRegistered(t *testing.T) {
	h := startManager(t, tempDirectory(t))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := h.admit(ctx, t.Context(), qat, h.socket("none.sock"))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(),
		"no answer from the plugin at "+h.socket("none.sock")) {
		t.Errorf("the answer is %v", err)
	}
	h.has(t, qat, nil)
}

// As while a DaemonSet is updated that starts a new pod before it stops the old one.
func TestTheNewestPluginServesAndTheOneBeforeItAgainWhenThatLeaves(t *testing.T) {
	for name, place := range map[string]string{"at another socket": "second.sock", "at the same path": "first.sock"} {
		t.Run(name, func(t *testing.T) {
			h := startManager(t, tempDirectory(t))
			first := startPlugin(t, h.socket("first.sock"), dev("a"))
			mustRegister(t, h, first, qat)
			h.has(t, qat, map[string]bool{"none/a": true})

			second := startPlugin(t, h.socket(place), dev("b"))
			mustRegister(t, h, second, qat)
			h.has(t, qat, map[string]bool{"none/b": true})
			if _, err := h.Allocate(t.Context(), qat, []string{"b"}, "pod main"); err != nil {
				t.Error(err)
			}
			if allocated, _ := second.Calls(); len(allocated) != 1 {
				t.Errorf("the newest plugin was called %d times", len(allocated))
			}
			first.SetDevices(dev("a"), dev("late")) // which counts for nothing now
			h.awaitOlder(t, qat, "late")
			h.has(t, qat, map[string]bool{"none/b": true})

			second.Stop()
			h.has(t, qat, map[string]bool{"none/a": true, "none/late": true})
			if s := h.state(qat); s.Err != nil || !s.Serving {
				t.Errorf("with the older plugin: %+v", s)
			}
			first.Stop()
			h.has(t, qat, map[string]bool{"none/a": false, "none/late": false})
		})
	}
}

// awaitOlder waits until an older plugin of the resource has listed a device.
func (h *testManager) awaitOlder(t *testing.T, resource types.ResourceName, id string) {
	t.Helper()
	eventually(t, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, s := range h.lookup(resource).older {
			if s.last != nil && slices.ContainsFunc(s.last.devices, func(e entry) bool { return e.ID == id }) {
				return nil
			}
		}
		return fmt.Errorf("no older plugin of %s lists %s", resource, id)
	})
}

func TestAnOlderPluginThatLeavesFirstCostsNothing(t *testing.T) {
	h := startManager(t, tempDirectory(t))
	first := startPlugin(t, h.socket("first.sock"), dev("a"))
	mustRegister(t, h, first, qat)
	second := startPlugin(t, h.socket("second.sock"), dev("a"))
	mustRegister(t, h, second, qat)
	h.has(t, qat, map[string]bool{"none/a": true})
	first.Stop()
	eventually(t, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.lookup(qat).older) > 0 {
			return errors.New("the older plugin is still there")
		}
		return nil
	})
	if s := h.state(qat); s.Err != nil || !s.Serving || !h.devicesOf(qat)["none/a"] {
		t.Errorf("with the newer plugin: %+v", s)
	}
}

func TestAPluginThatHasNotListedYetTakesNothingFromTheOneBefore(t *testing.T) {
	h := New(Options{})
	first, second := &session{resource: qat, ended: make(chan struct{})}, &session{resource: qat}
	r := h.resource(qat)
	r.session, r.presence = first, arriving
	h.update(t.Context(), first, []*pluginapi.Device{dev("a")})
	r.older, r.session, r.presence = []*session{first}, second, succeeding
	h.touch(r)
	if s, _ := h.States(); s[0].Info.KubeAlloc[qat] != 1 || s[0].Serving {
		t.Errorf("until the newer one lists: %+v", s[0])
	}
	h.endSession(t.Context(), second, context.Canceled)
	if s, _ := h.States(); s[0].Info.KubeAlloc[qat] != 1 || !s[0].Serving || s[0].Err != nil {
		t.Errorf("when it left before that: %+v", s[0])
	}
}

func TestPluginsThatWantTooMuchAreRefusedAndOthersAreNot(t *testing.T) {
	h := startManager(t, tempDirectory(t))
	greedy := startPlugin(t, h.socket("greedy.sock"), dev("a"))
	name := func(i int) types.ResourceName { return types.ResourceName(fmt.Sprintf("a.b/c%d", i)) }
	for i := range MaxResourcesAtSocket {
		mustRegister(t, h, greedy, name(i))
	}
	err := greedy.register(t, h.Manager, name(MaxResourcesAtSocket))
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(),
		"has registered 128 resources already, and kubecri serves no more at one socket: register fewer") {
		t.Errorf("one too many at a socket is answered by %v", err)
	}
	mustRegister(t, h, greedy, name(0)) // is none more
	mustRegister(t, h, startPlugin(t, h.socket("qat.sock"), dev("a")), qat)
	h.has(t, qat, map[string]bool{"none/a": true})
	for i := range maxPlugins - 1 {
		mustRegister(t, h, startPlugin(t, h.socket(fmt.Sprintf("qat%d.sock", i)), dev("a")), qat)
	}
	if err := startPlugin(t, h.socket("last.sock"), dev("a")).register(t, h.Manager, qat); err == nil ||
		!strings.Contains(err.Error(), "is registered by 4 living plugins already") {
		t.Errorf("one plugin too many of a resource is answered by %v", err)
	}
}

func TestTheNumberOfResourcesIsBounded(t *testing.T) {
	h := New(Options{})
	for i := range MaxResources {
		if _, err := h.claim(types.ResourceName(fmt.Sprintf("a.b/c%d", i)), "a socket"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.claim(qat, "another"); err == nil || !strings.Contains(err.Error(),
		"device plugins have 512 resources on this node already") {
		t.Errorf("one too many is answered by %v", err)
	}
}

func TestANameThatCouldNotBeRegisteredIsForgotten(t *testing.T) {
	h := startManager(t, tempDirectory(t))
	for i := range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		name := types.ResourceName(fmt.Sprintf("a.b/c%d", i))
		if _, err := h.admit(ctx, t.Context(), name, h.socket("none.sock")); err == nil {
			t.Error("a plugin that is not there is registered")
		}
		cancel()
	}
	if _, err := h.await(canceled(t), qat, []string{"a"}); err == nil {
		t.Error("a plugin that never registered is there")
	}
	p := startPlugin(t, h.socket("p.sock"), dev("a"))
	mustRegister(t, h, p, gpu)
	h.has(t, gpu, map[string]bool{"none/a": true})
	p.Stop()
	h.has(t, gpu, map[string]bool{"none/a": false})
	h.clock.Step(KeepCapacity)
	h.has(t, gpu, nil)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.resources) > 0 {
		t.Errorf("the names %q are kept", slices.Sorted(maps.Keys(h.resources)))
	}
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestAPluginThatComesBackAtItsSocketIsTheSamePlugin(t *testing.T) {
	h := startManager(t, tempDirectory(t))
	p := startPlugin(t, h.socket("p.sock"), dev("a"))
	for range 3 {
		mustRegister(t, h, p, qat)
		h.has(t, qat, map[string]bool{"none/a": true})
	}
	p.Stop()
	again := startPlugin(t, p.socket, dev("b"))
	mustRegister(t, h, again, qat)
	h.has(t, qat, map[string]bool{"none/b": true})
}

func TestARestartRemovesSocketsAndTakesPluginsBack(t *testing.T) {
	directory := tempDirectory(t)
	h := startManager(t, directory)
	p := startPlugin(t, h.socket("p.sock"), dev("a", 1))
	mustRegister(t, h, p, qat)
	h.has(t, qat, map[string]bool{"1/a": true})
	if err := os.WriteFile(h.socket("kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.stop()

	again := startManager(t, directory)
	if _, err := os.Lstat(p.socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the plugin's socket is still there: %v", err)
	}
	if _, err := os.Lstat(h.socket("kept")); err != nil {
		t.Errorf("what is no socket is gone: %v", err)
	}
	again.has(t, qat, map[string]bool{"1/a": false})
	if s := again.state(qat); s.Reported || s.Err == nil || !strings.Contains(s.Err.Error(),
		"has not registered since kubecri was started") {
		t.Errorf("right after the restart: %+v", s)
	}
	again.clock.Step(returnTimeout)
	if s := again.state(qat); !s.Reported {
		t.Errorf("when the plugin had time to come back: %+v", s)
	}
	p.Stop()
	p.serve(t)
	mustRegister(t, again, p, qat)
	again.has(t, qat, map[string]bool{"1/a": true})
}

func TestDevicesThatCouldNotBeSavedAreSavedInTheEnd(t *testing.T) {
	directory := tempDirectory(t)
	h := startManager(t, directory)
	eventually(t, func() error { _, err := os.Stat(h.options.StateFile); return err }) // without any
	spare := h.options.StateFile + ".spare"                                            // which is written first
	if err := errors.Join(os.RemoveAll(spare), os.Mkdir(spare, 0o700)); err != nil {
		t.Fatal(err)
	}
	mustRegister(t, h, startPlugin(t, h.socket("p.sock"), dev("a")), qat)
	h.has(t, qat, map[string]bool{"none/a": true})
	time.Sleep(100 * time.Millisecond) // they are not saved meanwhile
	if err := os.Remove(spare); err != nil {
		t.Fatal(err)
	}
	h.stop()
	startManager(t, directory).has(t, qat, map[string]bool{"none/a": false})
}

func TestDevicesThatAnEarlierReleaseRememberedAreReadOnce(t *testing.T) {
	directory := tempDirectory(t)
	legacy := filepath.Join(directory, legacyName)
	written, err := os.ReadFile("testdata/device-plugins.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(legacy, written, 0o600); err != nil {
		t.Fatal(err)
	}
	h := startManager(t, directory)
	h.has(t, qat, map[string]bool{"0/a": false, "1/b": false})
	eventually(t, func() error {
		if _, err := os.Stat(legacy); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is still there: %v", legacy, err)
		}
		return nil
	})
	h.stop()
	startManager(t, directory).has(t, qat, map[string]bool{"0/a": false, "1/b": false})
}

func TestAPluginThatNeverComesBackIsForgotten(t *testing.T) {
	directory := tempDirectory(t)
	h := startManager(t, directory)
	p := startPlugin(t, h.socket("p.sock"), dev("a"))
	mustRegister(t, h, p, qat)
	h.has(t, qat, map[string]bool{"none/a": true})
	h.stop()
	for _, want := range []map[string]bool{{"none/a": false}, nil} {
		again := startManager(t, directory)
		again.has(t, qat, want)
		again.clock.Step(KeepCapacity)
		again.has(t, qat, nil)
		eventually(t, func() error {
			if raw, err := os.ReadFile(again.options.StateFile); err != nil || strings.Contains(string(raw),
				"/a/device") {
				return errors.New("the device is still remembered")
			}
			return nil
		})
		again.stop()
	}
}

func TestADirectoryThatCannotBeUsedIsTriedAgain(t *testing.T) {
	directory := tempDirectory(t)
	blocked := directory + "/blocked"
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h := New(Options{Dir: blocked + "/plugins", StateFile: directory + "/" + StateFileName})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); h.Run(ctx) }()
	defer func() { cancel(); <-done }()
	eventually(t, func() error {
		if err := h.Check(); err == nil || !strings.Contains(err.Error(), "directory of device plugins") {
			return errors.New("nothing says that the directory is blocked")
		}
		return nil
	})
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	eventually(t, h.Check)
	conn, err := net.Dial("unix", blocked+"/plugins/kubelet.sock")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestAPluginThatLeavesForTheNextProcessIsNotLost(t *testing.T) {
	directory := tempDirectory(t)
	before := startManager(t, directory)
	p := startPlugin(t, before.socket("p.sock"), dev("a"))
	mustRegister(t, before, p, qat)
	before.has(t, qat, map[string]bool{"none/a": true})
	before.mu.Lock()
	session := before.resources[qat].session
	before.mu.Unlock()

	after := startManager(t, directory)
	p.Stop()
	<-session.ended
	before.has(t, qat, map[string]bool{"none/a": true})
	if err := before.Check(); err == nil || !strings.Contains(err.Error(), "another process serves it") {
		t.Errorf("the process before says %v", err)
	}
	before.stop()
	p.serve(t)
	mustRegister(t, after, p, qat)
	after.has(t, qat, map[string]bool{"none/a": true})
}

func TestAPathThatIsTooLongForASocketIsNamed(t *testing.T) {
	directory := tempDirectory(t) + "/" + strings.Repeat("x", 100)
	if _, err := listen(directory); err == nil || !strings.Contains(err.Error(),
		"the path of a socket at most 107; choose a shorter one") {
		t.Errorf("the error is %v", err)
	}
}

// A plugin sees the directory at another path, which may be a shorter one.
func TestAPluginIsServedWhoseSocketHasALongerPathThanAnAddressCanHave(t *testing.T) {
	h := startManager(t, tempDirectory(t))
	name := strings.Repeat("x", 85) // the longest with the kubelet has 75
	t.Chdir(h.directory)
	p := startPlugin(t, name, dev("a"))
	if path := h.socket(name); len(path) <= maxSocketPath {
		t.Fatalf("%s is no longer than an address can be", path)
	}
	mustRegister(t, h, p, qat)
	h.has(t, qat, map[string]bool{"none/a": true})
}
