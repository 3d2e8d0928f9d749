// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
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

func TestAResourceHasOneLivingPlugin(t *testing.T) {
	h := startManager(t, tempDirectory(t))
	first := startPlugin(t, h.socket("first.sock"), dev("a"))
	second := startPlugin(t, h.socket("second.sock"), dev("b"))
	mustRegister(t, h, first, qat)
	h.has(t, qat, map[string]bool{"none/a": true})

	err := second.register(t, h.Manager, qat)
	if status.Code(err) != codes.AlreadyExists || !strings.Contains(err.Error(),
		"already registered by a living plugin, at "+first.socket) {
		t.Errorf("the second plugin was notified of %v", err)
	}
	h.has(t, qat, map[string]bool{"none/a": true})

	first.Stop()
	mustRegister(t, h, second, qat)
	h.has(t, qat, map[string]bool{"none/b": true})
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
	again.clock.Step(returnLimit)
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
		again.clock.Step(Keep)
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

func TestADirectoryWithTooLongAPathIsToldAsThat(t *testing.T) {
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
