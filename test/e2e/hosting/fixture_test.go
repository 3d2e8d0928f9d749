// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package hosting

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/node/devicemanager"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
	"github.com/kubedevice/kubedevice/test/sandbox"
	"github.com/kubedevice/kubedevice/test/vendors"
)

// timeout is how long a plugin may take for what takes it ten seconds at most.
const timeout = 2 * time.Minute

// fixture is a simulated machine with a manager of device plugins.
type fixture struct {
	*vendors.Machine
	nvml    nvmltest.Library
	manager *devicemanager.Manager

	dir, directory string
	stop           func() // the manager
}

// newFixture returns a fixture whose directory for plugins has as long a path as kubecri's by
// default.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	dir, err := os.MkdirTemp("", "hosting")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s := &fixture{nvml: nvmltest.Build(t, vendors.NVML()), dir: dir}
	if s.Machine, err = vendors.NewMachine(filepath.Join(dir, "machine"), s.nvml.Path); err != nil {
		t.Fatal(err)
	}
	if err := s.MakeNodes(s.path("dev")); err != nil {
		t.Fatal(err)
	}
	for name, minor := range map[string]uint32{"null": 3, "urandom": 9} { // which every program expects
		if err := unix.Mknod(s.path("dev/"+name), unix.S_IFCHR|0o666, int(unix.Mkdev(1, minor))); err != nil {
			t.Fatal(err)
		}
	}
	for _, directory := range []string{"run/cdi", "lib/kubelet/device-plugins", "lib/kubelet/plugins_registry"} {
		if err := os.MkdirAll(s.path(directory), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const byDefault = "/var/lib/kubedevice/device-plugins"
	s.directory = s.path("device-plugins")
	for len(s.directory) < len(byDefault) {
		s.directory += "x"
	}
	s.serve(t)
	return s
}

func (s *fixture) path(name string) string { return filepath.Join(s.dir, name) }

// serve starts a manager, in place of the one before.
func (s *fixture) serve(t *testing.T) {
	t.Helper()
	if s.stop != nil {
		s.stop()
	}
	s.manager = devicemanager.New(devicemanager.Options{Dir: s.directory,
		RegistryDir: s.path(devicemanager.RegistryDirName), StateFile: s.path(devicemanager.StateFileName)})
	if err := s.manager.Load(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.manager.Run(ctx)
	}()
	s.stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(s.stop)
	s.await(t, "the manager to serve", func() string {
		if err := s.manager.Check(); err != nil {
			return err.Error()
		}
		return ""
	})
}

// start starts a plugin, which sees the machine and takes the manager's directory for the
// kubelet's, and returns how to kill it. It is killed when the test ends. What it says is shown if
// the test fails.
func (s *fixture) start(t *testing.T, plugin vendors.Plugin) (kill func()) {
	t.Helper()
	log, err := os.CreateTemp(s.dir, plugin.Name)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(plugin.Path(programs), plugin.Args...)
	command.Env = append(plugin.Env, "PATH="+os.Getenv("PATH"))
	command.Stdout, command.Stderr = log, log
	mounts := []sandbox.Mount{
		{Source: s.Sys(), Target: "/sys"},
		{Source: s.path("dev"), Target: "/dev"},
		{Source: s.path("run"), Target: "/run"},
		{Source: s.path("lib"), Target: "/var/lib"},
		{Source: s.directory, Target: vendors.KubeletDirectory},
	}
	if plugin.Registry {
		mounts = append(mounts,
			sandbox.Mount{Source: s.path(devicemanager.RegistryDirName), Target: vendors.KubeletRegistry})
	}
	err = sandbox.WithMounts(mounts, func() error {
		if plugin.HideRDMA {
			if err := sandbox.HideRDMA(); err != nil {
				return err
			}
		}
		return command.Start()
	})
	if err != nil {
		t.Fatalf("start %s: %v", plugin.Name, err)
	}
	running := true
	kill = func() {
		if running {
			command.Process.Kill() //nolint:errcheck // it has ended then
			command.Wait()         //nolint:errcheck // it was killed
			running = false
		}
	}
	t.Cleanup(func() {
		kill()
		if t.Failed() {
			content, err := os.ReadFile(log.Name())
			t.Logf("%s said, %v:\n%s", plugin.Name, err, content)
		}
		log.Close()
	})
	return kill
}

// await waits until problem returns an empty string. what completes the sentence "wait for ...".
func (s *fixture) await(t *testing.T, what string, problem func() string) {
	t.Helper()
	deadline := time.After(timeout)
	for {
		_, changed := s.manager.States()
		now := problem()
		if now == "" {
			return
		}
		select {
		case <-changed:
		case <-time.After(50 * time.Millisecond): // not all that is waited for is announced
		case <-deadline:
			t.Fatalf("wait for %s: %s", what, now)
		}
	}
}

// awaitDevices waits until the manager offers the devices, which are all of one resource, and just
// those of them to be allocated that fit.
func (s *fixture) awaitDevices(t *testing.T, resource types.ResourceName, devices []vendors.Device,
	fit func(vendors.Device) bool) {
	t.Helper()
	want := types.NewNodeInfo()
	want.KubeCap[resource], want.KubeAlloc[resource] = int64(len(devices)), 0
	for _, device := range devices {
		name, err := kubeletdevice.Name(kubeletdevice.Device{Resource: resource, ID: device.ID, NUMA: device.NUMA})
		if err != nil {
			t.Fatal(err)
		}
		want.Capacity[name], want.Allocatable[name] = 1, 0
		if fit(device) {
			want.Allocatable[name] = 1
			want.KubeAlloc[resource]++
		}
	}
	s.await(t, "the devices of "+string(resource), func() string {
		states, _ := s.manager.States()
		for _, state := range states {
			if state.Resource == resource {
				return cmp.Diff(want, state.Info)
			}
		}
		return "no plugin has registered it"
	})
}

func all(vendors.Device) bool  { return true }
func none(vendors.Device) bool { return false }

// awaitPlugin waits until the manager offers all devices of a plugin.
func (s *fixture) awaitPlugin(t *testing.T, plugin vendors.Plugin) {
	t.Helper()
	for resource, devices := range plugin.Resources() {
		s.awaitDevices(t, resource, devices, all)
	}
}
