// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// testManager is a manager whose clock the test moves.
type testManager struct {
	*Manager
	clock     *clocktesting.FakeClock
	directory string
	stop      func()
}

// startManager runs a manager whose directories are below directory, until the test ends or it is
// stopped.
func startManager(t *testing.T, directory string, change ...func(*Options)) *testManager {
	t.Helper()
	h := &testManager{clock: clocktesting.NewFakeClock(time.Now()), directory: filepath.Join(directory, DirName)}
	options := Options{Dir: h.directory, StateFile: filepath.Join(directory, StateFileName), Clock: h.clock}
	for _, c := range change {
		c(&options)
	}
	h.Manager = New(options)
	if err := h.Load(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { h.Run(ctx) })
	running.Go(func() { h.WatchKubelet(ctx, func(context.Context) {}) })
	h.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(h.stop)
	eventually(t, func() error { return h.Check() })
	return h
}

// tempDirectory is short enough for sockets below it.
func tempDirectory(t *testing.T) string {
	t.Helper()
	directory, err := os.MkdirTemp("", "dh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(directory) })
	return directory
}

func (h *testManager) socket(name string) string { return filepath.Join(h.directory, name) }

// eventually waits until what returns no error any more.
func eventually(t *testing.T, what func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := what()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// has waits until the resource's devices are those, each with whether it is allocatable. Devices
// are written nodes/ID.
func (h *testManager) has(t *testing.T, resource types.ResourceName, want map[string]bool) {
	t.Helper()
	eventually(t, func() error {
		if diff := cmp.Diff(want, h.devicesOf(resource)); diff != "" {
			return fmt.Errorf("%s: devices and whether they are allocatable (-want +got):\n%s", resource, diff)
		}
		return nil
	})
}

// devicesOf returns nil for a resource that the node does not have.
func (h *testManager) devicesOf(resource types.ResourceName) map[string]bool {
	state := h.state(resource)
	if state.Info == nil {
		return nil
	}
	devices := map[string]bool{}
	allocatable := int64(0)
	for name := range state.Info.Capacity {
		segments := strings.Split(string(name), "/")
		devices[segments[3]+"/"+segments[5]] = state.Info.Allocatable[name] == 1
		allocatable += state.Info.Allocatable[name]
	}
	if state.Info.KubeCap[resource] != int64(len(devices)) || state.Info.KubeAlloc[resource] != allocatable {
		return map[string]bool{fmt.Sprintf("counts %v, %v", state.Info.KubeCap, state.Info.KubeAlloc): false}
	}
	return devices
}

func (h *testManager) state(resource types.ResourceName) State {
	states, _ := h.States()
	for _, s := range states {
		if s.Resource == resource {
			return s
		}
	}
	return State{}
}

func mustRegister(t *testing.T, h *testManager, p *testPlugin, resource types.ResourceName) {
	t.Helper()
	if err := p.register(t, h.Manager, resource); err != nil {
		t.Fatal(err)
	}
}

func TestDevicesOfAllPluginsBecomeTheNodes(t *testing.T) {
	h := startManager(t, tempDirectory(t))
	mustRegister(t, h, startPlugin(t, h.socket("qat.sock"), dev("a:0", 0), dev("b/1", 1, 0)), qat)
	mustRegister(t, h, startPlugin(t, h.socket("gpu.sock"), dev("GPU-1"), unhealthy("GPU-2", -1)), gpu)

	h.has(t, qat, map[string]bool{"0/a:0": true, "0-1/b%2F1": true})
	h.has(t, gpu, map[string]bool{"none/GPU-1": true, "none/GPU-2": false})
	for _, resource := range []types.ResourceName{qat, gpu} {
		if s := h.state(resource); !s.Reported || s.Err != nil {
			t.Errorf("%s: %+v", resource, s)
		}
	}
}

func TestAnUnhealthyDeviceDoesNotAffectOthers(t *testing.T) {
	h := startManager(t, tempDirectory(t))
	p := startPlugin(t, h.socket("qat.sock"), dev("a"), dev("b"))
	mustRegister(t, h, p, qat)
	h.has(t, qat, map[string]bool{"none/a": true, "none/b": true})

	p.SetDevices(unhealthy("a"), dev("b"))
	h.has(t, qat, map[string]bool{"none/a": false, "none/b": true})
	p.SetDevices(dev("a"), dev("b"))
	h.has(t, qat, map[string]bool{"none/a": true, "none/b": true})
	p.SetDevices(dev("b"), dev("c"))
	h.has(t, qat, map[string]bool{"none/b": true, "none/c": true})
	p.SetDevices()
	h.has(t, qat, map[string]bool{})
}

func TestAPluginThatIsGoneKeepsItsCapacityForFiveMinutes(t *testing.T) {
	h := startManager(t, tempDirectory(t))
	p := startPlugin(t, h.socket("qat.sock"), dev("a"))
	mustRegister(t, h, p, qat)
	h.has(t, qat, map[string]bool{"none/a": true})

	p.Stop()
	h.has(t, qat, map[string]bool{"none/a": false})
	if err := h.state(qat).Err; err == nil || !strings.Contains(err.Error(), "intel.com/qat is gone since") {
		t.Errorf("the state says %v", err)
	}
	h.clock.Step(KeepCapacity - time.Second)
	h.has(t, qat, map[string]bool{"none/a": false})
	h.clock.Step(time.Second)
	h.has(t, qat, nil)
	if err := h.state(qat).Err; err != nil {
		t.Errorf("after that the state still says %v", err)
	}

	p.serve(t)
	mustRegister(t, h, p, qat)
	h.has(t, qat, map[string]bool{"none/a": true})
	h.clock.Step(2 * KeepCapacity)
	h.has(t, qat, map[string]bool{"none/a": true})
}

func TestAListThatCannotBeRightLosesNothing(t *testing.T) {
	var many []*pluginapi.Device
	for i := range MaxDevices + 1 {
		many = append(many, dev(fmt.Sprint(i)))
	}
	for name, test := range map[string]struct {
		list []*pluginapi.Device
		want string
	}{
		"too many devices": {many, "10001 devices, more than 10000"},
	} {
		t.Run(name, func(t *testing.T) {
			h := startManager(t, tempDirectory(t))
			p := startPlugin(t, h.socket("qat.sock"), dev("a"))
			mustRegister(t, h, p, qat)
			h.has(t, qat, map[string]bool{"none/a": true})

			p.SetDevices(test.list...)
			eventually(t, func() error {
				if err := h.state(qat).Err; err == nil || !strings.Contains(err.Error(), test.want) ||
					len(err.Error()) > 400 {
					return fmt.Errorf("the state says %v, want %q", err, test.want)
				}
				return nil
			})
			h.has(t, qat, map[string]bool{"none/a": true})
			p.SetDevices(dev("b"))
			h.has(t, qat, map[string]bool{"none/b": true})
			if err := h.state(qat).Err; err != nil {
				t.Errorf("after a good list the state says %v", err)
			}
		})
	}
}

func TestADeviceThatIsListedTwiceIsOneDeviceAndAnOddOneCostsNoOther(t *testing.T) {
	long := strings.Repeat("x", 2000)
	for name, test := range map[string]struct {
		list []*pluginapi.Device
		want map[string]bool
		said string
	}{
		"with the same health": {
			[]*pluginapi.Device{dev("a"), dev("b"), dev("a")},
			map[string]bool{"none/a": true, "none/b": true}, `more than once, and each of them counts as one: "a"`,
		},
		"healthy, then not": {
			[]*pluginapi.Device{dev("a"), unhealthy("a"), dev("b")},
			map[string]bool{"none/a": false, "none/b": true}, `counts as one: "a"`,
		},
		"unhealthy, then not": {
			[]*pluginapi.Device{unhealthy("a"), dev("a"), dev("b")},
			map[string]bool{"none/a": false, "none/b": true}, `counts as one: "a"`,
		},
		"with another topology": {
			[]*pluginapi.Device{dev("a", 0), dev("a", 1)}, map[string]bool{"1/a": true}, `counts as one: "a"`,
		},
		"many of them": {
			[]*pluginapi.Device{dev("a"), dev("a"), dev("b"), dev("b"), dev("c"), dev("c"), dev("d"), dev("d")},
			map[string]bool{"none/a": true, "none/b": true, "none/c": true, "none/d": true},
			`counts as one: "a", "b", "c" and 1 more`,
		},
		"an empty ID": {
			[]*pluginapi.Device{dev("a"), dev("")}, map[string]bool{"none/a": true},
			"cannot be offered: a device of intel.com/qat has an empty ID",
		},
		"an ID of absurd length": {
			[]*pluginapi.Device{dev("a"), dev(long)}, map[string]bool{"none/a": true},
			"the plugin must use a shorter ID",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := startManager(t, tempDirectory(t))
			p := startPlugin(t, h.socket("qat.sock"), test.list...)
			mustRegister(t, h, p, qat)
			h.has(t, qat, test.want)
			s := h.state(qat)
			if s.Err != nil || s.Remark == nil || !strings.Contains(s.Remark.Error(), test.said) ||
				len(s.Remark.Error()) > 400 {
				t.Errorf("the state says %v, and %v; want %q", s.Err, s.Remark, test.said)
			}
			p.SetDevices(dev("z"))
			h.has(t, qat, map[string]bool{"none/z": true})
			if s := h.state(qat); s.Remark != nil {
				t.Errorf("after a good list the state says %v", s.Remark)
			}
		})
	}
}

func TestAnUnchangedListNotifiesNoSubscriber(t *testing.T) {
	h := New(Options{})
	s := &session{resource: qat}
	r := h.resource(qat)
	r.session, r.presence = s, arriving
	h.update(t.Context(), s, []*pluginapi.Device{dev("a", 0, 1), dev("b")})
	_, changed := h.States()
	h.update(t.Context(), s, []*pluginapi.Device{dev("b"), dev("a", 1, 0)})
	select {
	case <-changed:
		t.Error("the same list in another order woke who waits for changes")
	default:
	}
	h.update(t.Context(), s, []*pluginapi.Device{dev("b"), unhealthy("a", 1, 0)})
	select {
	case <-changed:
	default:
		t.Error("a device that turned sick woke nobody")
	}
}

func TestListsOfAPreviousStreamAreIgnored(t *testing.T) {
	h := New(Options{})
	before, after := &session{resource: qat}, &session{resource: qat}
	r := h.resource(qat)
	r.session, r.presence = after, arriving
	h.update(t.Context(), after, []*pluginapi.Device{dev("new")})
	h.update(t.Context(), before, []*pluginapi.Device{dev("old")})
	h.endSession(t.Context(), before, context.Canceled)

	states, _ := h.States()
	if len(states) != 1 || states[0].Err != nil ||
		states[0].Info.Allocatable["resource/group/numa/none/intel.com:qat/new/device"] != 1 {
		t.Errorf("states %+v", states)
	}
}
