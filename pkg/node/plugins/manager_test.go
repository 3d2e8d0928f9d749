// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a device plugin whose methods a test replaces.
type fake struct {
	name       string
	concurrent bool

	mu       sync.Mutex
	start    func() error
	update   func(*types.NodeInfo) error
	allocate func(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error)
}

func (f *fake) New() error           { return nil }
func (f *fake) GetName() string      { return f.name }
func (f *fake) ConcurrentSafe() bool { return f.concurrent }

func (f *fake) Start() error {
	f.mu.Lock()
	start := f.start
	f.mu.Unlock()
	if start == nil {
		return nil
	}
	return start()
}

func (f *fake) UpdateNodeInfo(info *types.NodeInfo) error {
	f.mu.Lock()
	update := f.update
	f.mu.Unlock()
	if update == nil {
		return nil
	}
	return update(info)
}

func (f *fake) Allocate(pod *types.PodInfo,
	container *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
	return f.allocate(pod, container)
}

func (f *fake) set(update func(*types.NodeInfo) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.update = update
}

// offers returns an UpdateNodeInfo that reports the quantities, and a count of them.
func offers(count types.ResourceName, names ...types.ResourceName) func(*types.NodeInfo) error {
	return func(info *types.NodeInfo) error {
		for _, name := range names {
			info.Capacity[name], info.Allocatable[name] = 1, 1
		}
		if count != "" {
			info.KubeCap[count], info.KubeAlloc[count] = int64(len(names)), int64(len(names))
		}
		return nil
	}
}

const (
	card0 types.ResourceName = "resource/group/gpu/0/cards"
	card1 types.ResourceName = "resource/group/gpu/1/cards"
	card2 types.ResourceName = "resource/group/gpu/2/cards"
	count types.ResourceName = "example.com/gpu"
)

var quick = Timing{Start: time.Second, Update: time.Second, Allocate: time.Second, Interval: time.Millisecond}

// run runs a manager of the plugins until the test ends.
func run(t *testing.T, timing Timing, rejected error, fakes ...device.Device) *Manager {
	t.Helper()
	return start(t, newFiles(timing, rejected, fakes...))
}

func newFiles(timing Timing, rejected error, fakes ...device.Device) *Files {
	load := func(context.Context) (loaded []pluginload.Loaded[device.Device], errs []error) {
		for _, f := range fakes {
			loaded = append(loaded, pluginload.Loaded[device.Device]{Name: f.GetName(), Plugin: f})
		}
		if rejected != nil {
			errs = append(errs, rejected)
		}
		return loaded, errs
	}
	return NewFiles("node-1", load, timing, nil)
}

// start runs the files, and a manager of them and other transports, until the test ends.
func start(t *testing.T, files *Files, others ...Transport) *Manager {
	t.Helper()
	return startWith(t, files, unknownHoldings{}, others...)
}

// startWith is start for files that are reported what pods hold.
func startWith(t *testing.T, files *Files, holdings Holdings, others ...Transport) *Manager {
	t.Helper()
	m := New("node-1", append([]Transport{files}, others...)...)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { files.RunWith(ctx, holdings) })
	running.Go(func() { m.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return m
}

// until waits for an inventory that is as the test wants it.
func until(t *testing.T, m *Manager, what string, good func(*Inventory) bool) *Inventory {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		inventory, changed := m.Inventory()
		if good(inventory) {
			return inventory
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("%s: not so after 20s; the node has %v", what, inventory.Node)
		}
	}
}

func complete(i *Inventory) bool { return i.Complete }

func TestUsageOfAllPluginsIsMerged(t *testing.T) {
	m := run(t, quick, nil,
		&fake{name: "a", update: offers(count, card0)},
		&fake{name: "b", update: func(info *types.NodeInfo) error {
			info.Capacity[card1] = 1 // and not allocatable
			info.KubeCap["example.com/nic"] = 2
			info.Scorer[card1] = 1
			info.Used[card1] = 1
			return nil
		}})
	got := until(t, m, "complete", complete)
	want := &types.NodeInfo{
		Name:        "node-1",
		Capacity:    types.ResourceList{card0: 1, card1: 1, count: 1, "example.com/nic": 2},
		Allocatable: types.ResourceList{card0: 1, count: 1, "example.com/nic": 2},
		Used:        types.ResourceList{card1: 1},
		Scorer:      types.ResourceScorer{card1: 1},
		KubeCap:     types.ResourceList{count: 1, "example.com/nic": 2},
		KubeAlloc:   types.ResourceList{count: 1, "example.com/nic": 2},
	}
	if diff := cmp.Diff(want, got.Node); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if quantity, known := got.Allocatable(card1); quantity != 0 || !known {
		t.Errorf("a device that is there but not allocatable: %d, %v", quantity, known)
	}
	if _, known := got.Allocatable("resource/group/gpu/9/cards"); known {
		t.Error("a device that is not there is known")
	}
}

// answering is a source that reports for the first time just after its state was read.
type answering struct {
	Source
	reads int
}

func (a *answering) Label() string { return "answering" }

func (a *answering) State() State {
	if a.reads++; a.reads == 1 {
		return State{Err: errors.New("not started")}
	}
	info := types.NewNodeInfoWithName("node-1")
	return State{Info: info, Reported: true, Err: offers("", card0)(info)}
}

func TestTheManagerIsSyncedAfterItsInventoryHasAllReports(t *testing.T) {
	m := New("node-1", &transport{sources: []Source{&answering{}}})
	for _, reported := range []bool{false, true} {
		m.refresh(t.Context())
		synced := false
		select {
		case <-m.Synced():
			synced = true
		default:
		}
		inventory, _ := m.Inventory()
		if _, has := inventory.Allocatable(card0); has != reported || synced != reported {
			t.Errorf("reported: %v; the inventory has the device: %v, synced: %v", reported, has, synced)
		}
	}
}

func TestAResourceOfTwoPluginsIsTheFirsts(t *testing.T) {
	allocated := func(f *fake) *fake {
		f.allocate = func(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
			return nil, nil, map[string]string{"BY": f.name}, nil
		}
		return f
	}
	m := run(t, quick, nil, allocated(&fake{name: "a", update: offers("", card0)}),
		allocated(&fake{name: "b", update: offers("", card0, card1)}))
	got := until(t, m, "complete", complete)
	if len(got.Conflicts) != 1 || !strings.Contains(got.Conflicts[0], `"a" and "b"`) {
		t.Errorf("conflicts %q", got.Conflicts)
	}
	for name, want := range map[types.ResourceName]string{card0: "a", card1: "b"} {
		additions, err := m.Allocate(context.Background(), claim(name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]inject.Addition{{Plugin: want,
			Allocation: device.Allocation{Envs: map[string]string{"BY": want}}}}, additions); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// They may mean the same devices by different names.
func TestTheFirstOfTwoPluginsWithOneExtendedResourceCounts(t *testing.T) {
	a, b := &fake{name: "a", update: offers(count, card0)}, &fake{name: "b", update: offers(count, card1)}
	m := run(t, quick, nil, a, b)
	got := until(t, m, "complete", complete)
	if _, has := got.Allocatable(card1); has || got.Node.KubeCap[count] != 1 {
		t.Errorf("the second plugin's device counts: %+v", got.Node)
	}
	const why = `example.com/gpu is claimed by device plugins "a" and "b"`
	if err := m.Check(); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("health: %v", err)
	}
	if _, err := m.Allocate(t.Context(), claim(card1)); err == nil {
		t.Error("the second plugin's device is given out")
	}
}

func TestADeviceThatIsGoneByNowIsNotLeftOutSilently(t *testing.T) {
	m := run(t, quick, nil, &fake{name: "a", update: offers("", card0)})
	until(t, m, "complete", complete)
	_, err := m.Allocate(t.Context(), claim(card2))
	if err == nil || !strings.Contains(err.Error(), string(card2)+" of container") {
		t.Errorf("Allocate: %v", err)
	}
}

// A driver that hangs takes a thread for each call, and a process that has no more threads ends.
func TestAConcurrentPluginThatHangsIsNotCalledForEver(t *testing.T) {
	release := make(chan struct{})
	hanging := &fake{name: "hanging", concurrent: true, update: offers("", card0),
		allocate: func(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
			<-release
			return nil, nil, nil, nil
		}}
	timing := quick
	timing.Allocate = 10 * time.Millisecond
	m := run(t, timing, nil, hanging)
	until(t, m, "complete", complete)
	var err error
	for range maxOverdue + 1 {
		_, err = m.Allocate(t.Context(), claim(card0))
	}
	if err == nil || !strings.Contains(err.Error(), "16 earlier calls have not returned") {
		t.Errorf("Allocate: %v", err)
	}
	close(release)
}

func TestDevicesComeAndGo(t *testing.T) {
	f := &fake{name: "a", update: offers(count, card0)}
	m := run(t, quick, nil, f)
	until(t, m, "one device", func(i *Inventory) bool { return i.Node.KubeCap[count] == 1 })
	f.set(offers(count, card0, card1))
	until(t, m, "two devices", func(i *Inventory) bool { return i.Node.KubeCap[count] == 2 })
	f.set(offers(count))
	until(t, m, "no device", func(i *Inventory) bool {
		return len(i.Node.Allocatable) == 1 &&
			i.Node.KubeCap[count] == 0
	})
}

func TestAPluginThatDoesNotStartIsTriedAgainAndHarmsNoOther(t *testing.T) {
	var tries atomic.Int32
	release := make(chan struct{})
	broken := &fake{name: "broken", update: offers("", card1), start: func() error {
		switch tries.Add(1) {
		case 1:
			return errors.New("no driver")
		case 2:
			panic("half a driver")
		default:
			select {
			case <-release:
				return nil
			default:
				return errors.New("no driver")
			}
		}
	}}
	m := run(t, quick, nil, broken, &fake{name: "well", update: offers("", card0)})
	<-m.Synced()
	until(t, m, "the other's device is there", func(i *Inventory) bool { return i.Node.Capacity[card0] == 1 })
	if err := m.Check(); err == nil || !strings.Contains(err.Error(), `device plugin "broken": Start: `) ||
		strings.Contains(err.Error(), "well") {
		t.Errorf("health while it does not start: %v", err)
	}
	close(release)
	until(t, m, "both devices are there", func(i *Inventory) bool { return i.Complete && i.Node.Capacity[card1] == 1 })
	if err := m.Check(); err != nil {
		t.Errorf("health when it has started: %v", err)
	}
	if got := tries.Load(); got < 3 {
		t.Errorf("it was started after %d tries", got)
	}
}

func TestThePauseBeforeStartIsTriedAgainGrowsToAMinute(t *testing.T) {
	delays := startBackoff(time.Second)
	want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second,
		32 * time.Second, time.Minute, time.Minute, time.Minute}
	for i, base := range want {
		if got := delays.Step(); got < base || got > base+base/5 {
			t.Errorf("delay %d: %v, want %v and up to a fifth more", i, got, base)
		}
	}
}

func TestTheLastReportOfAFailingPluginIsKept(t *testing.T) {
	for name, fail := range map[string]func(*types.NodeInfo) error{
		"error":              func(*types.NodeInfo) error { return errors.New("driver gone") },
		"panic":              func(*types.NodeInfo) error { panic("driver gone") },
		"negative quantity":  func(info *types.NodeInfo) error { info.Capacity[card0] = -1; return nil },
		"impossible name":    func(info *types.NodeInfo) error { info.Capacity["resource/group/../x"] = 1; return nil },
		"Kubernetes' own":    func(info *types.NodeInfo) error { info.KubeCap["cpu"] = 64; return nil },
		"kubernetes.io name": func(info *types.NodeInfo) error { info.KubeCap["kubernetes.io/cpu"] = 64; return nil },
		"negative count":     func(info *types.NodeInfo) error { info.KubeCap[count] = -1; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{name: "a", update: offers(count, card0)}
			m := run(t, quick, nil, f)
			until(t, m, "complete", complete)
			f.set(fail)
			got := until(t, m, "incomplete", func(i *Inventory) bool { return !i.Complete })
			if diff := cmp.Diff(types.ResourceList{card0: 1, count: 1}, got.Node.Capacity); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if err := m.Check(); err == nil || !strings.Contains(err.Error(), `"a"`) {
				t.Errorf("health does not name the plugin: %v", err)
			}
			f.set(offers(count, card0))
			until(t, m, "complete again", complete)
		})
	}
}

func TestAFileThatWasRejectedLeavesTheInventoryIncomplete(t *testing.T) {
	m := run(t, quick, errors.New("plugin \"/x.so\": not an ELF file"), &fake{name: "a", update: offers("", card0)})
	got := until(t, m, "the other plugin's device", func(i *Inventory) bool { return i.Node.Capacity[card0] == 1 })
	if got.Complete {
		t.Error("the inventory says it is complete")
	}
	if err := m.Check(); err == nil || !strings.Contains(err.Error(), "/x.so") {
		t.Errorf("health: %v", err)
	}
}

func TestWithoutPluginsTheManagerIsSyncedAndTheInventoryComplete(t *testing.T) {
	m := run(t, quick, nil)
	<-m.Synced()
	until(t, m, "complete", complete)
}

func container(name types.ResourceName) *types.ContainerInfo {
	return &types.ContainerInfo{AllocateFrom: types.ResourceLocation{"x": name}}
}

// claim is that of a container which was given the resource.
func claim(name types.ResourceName) Claim {
	return Claim{PodUID: "u", ContainerName: "main", Pod: types.NewPodInfo(), Container: container(name)}
}
