// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/hosted"
	"github.com/kubedevice/kubedevice/pkg/node/devicehost"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const qat types.ResourceName = "intel.com/qat"

// deviceplugins stands for the plugins that are hosted, and for the record of their answers.
type deviceplugins struct {
	mu      sync.Mutex
	states  []devicehost.State
	changed chan struct{}
	asked   []string
	failure error
	kept    map[string][]byte
}

func newDeviceplugins(states ...devicehost.State) *deviceplugins {
	return &deviceplugins{states: states, changed: make(chan struct{}), kept: map[string][]byte{}}
}

func (d *deviceplugins) say(states ...devicehost.State) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.states = states
	close(d.changed)
	d.changed = make(chan struct{})
}

func (d *deviceplugins) States() ([]devicehost.State, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.states, d.changed
}

func (d *deviceplugins) note(call string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, call)
	return d.failure
}

func (d *deviceplugins) Allocate(_ context.Context, resource types.ResourceName, ids []string) ([]byte, error) {
	if err := d.note("allocate " + string(resource) + " " + strings.Join(ids, ",")); err != nil {
		return nil, err
	}
	return proto.Marshal(&pluginapi.ContainerAllocateResponse{Envs: map[string]string{"IDS": strings.Join(ids, ",")}})
}

func (d *deviceplugins) PreStart(_ context.Context, resource types.ResourceName, ids []string) error {
	return d.note("prestart " + string(resource) + " " + strings.Join(ids, ","))
}

func (d *deviceplugins) Kept(podUID, container, key string) ([]byte, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	answer, kept := d.kept[podUID+container+key]
	return answer, kept
}

func (d *deviceplugins) Keep(_ context.Context, podUID, container, key string, answer []byte) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if before, kept := d.kept[podUID+container+key]; kept {
		return before, nil
	}
	d.kept[podUID+container+key] = answer
	return answer, nil
}

// serving is the state of a resource with well devices of those IDs and sick ones, whose IDs begin with a minus sign.
func serving(t *testing.T, resource types.ResourceName, ids ...string) devicehost.State {
	t.Helper()
	info := types.NewNodeInfo()
	info.KubeCap[resource] = int64(len(ids))
	for _, id := range ids {
		name := hostedName(t, resource, strings.TrimPrefix(id, "-"))
		info.Capacity[name], info.Allocatable[name] = 1, 1
		if id[0] == '-' {
			info.Allocatable[name] = 0
		} else {
			info.KubeAlloc[resource]++
		}
	}
	return devicehost.State{Resource: resource, Info: info, Serving: true, Told: true}
}

// gone is the state of a resource whose plugin has left.
func gone(t *testing.T, resource types.ResourceName, ids ...string) devicehost.State {
	t.Helper()
	s := serving(t, resource, ids...)
	s.Serving, s.Err = false, errors.New("the plugin has left")
	for name := range s.Info.Allocatable {
		s.Info.Allocatable[name] = 0
	}
	s.Info.KubeAlloc[resource] = 0
	return s
}

func hostedName(t *testing.T, resource types.ResourceName, id string) types.ResourceName {
	t.Helper()
	name, err := hosted.Name(hosted.Device{Resource: resource, ID: id, NUMA: []int{0}})
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// runHosting runs a host of a plugin file and of hosted plugins until the test ends.
func runHosting(t *testing.T, d *deviceplugins) *Host {
	t.Helper()
	h := newHost(quick, nil, &fake{name: "a", update: offers("", card0), allocate: func(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
		return nil, nil, nil, nil
	}})
	h.Add(d, d)
	start(t, h)
	<-h.Settled()
	return h
}

func claimOf(pod string, names ...types.ResourceName) Claim {
	container := &types.ContainerInfo{AllocateFrom: types.ResourceLocation{}}
	for _, name := range names {
		container.AllocateFrom["request of "+name] = name
	}
	return Claim{PodUID: pod, ContainerName: "main", Pod: types.NewPodInfo(), Container: container}
}

func TestHostedDevicesStandBesideThoseOfPluginFiles(t *testing.T) {
	d := newDeviceplugins(serving(t, qat, "x", "-y"))
	h := runHosting(t, d)
	until(t, h, "both", func(i *Inventory) bool { return i.Complete && len(i.owners) > 3 })
	inventory, _ := h.Inventory()
	for name, want := range map[types.ResourceName]int64{card0: 1, qat: 1, hostedName(t, qat, "x"): 1, hostedName(t, qat, "y"): 0} {
		if got, known := inventory.Allocatable(name); !known || got != want {
			t.Errorf("%s: %d allocatable, known %v; want %d", name, got, known, want)
		}
	}
	if from := (types.ResourceLocation{"r": hostedName(t, qat, "x")}); !inventory.Serves(qat, from) {
		t.Error("a device of the resource does not serve who asks for it")
	}

	d.say(gone(t, qat, "x", "y"))
	until(t, h, "the plugin's absence", func(i *Inventory) bool { return !i.Complete })
	if err := h.Check(); err == nil || !strings.Contains(err.Error(), `"intel.com/qat": the plugin has left`) {
		t.Errorf("health says %v", err)
	}
	d.say()
	until(t, h, "nothing of it", func(i *Inventory) bool { _, known := i.Allocatable(qat); return i.Complete && !known })
}

func TestAHostedPluginIsAskedOnceForEachContainer(t *testing.T) {
	d := newDeviceplugins(serving(t, qat, "x", "y", "z"))
	h := runHosting(t, d)
	for range 2 {
		got, err := h.Allocate(t.Context(), claimOf("pod", hostedName(t, qat, "z"), hostedName(t, qat, "x"), card0))
		if err != nil {
			t.Fatal(err)
		}
		want := inject.Addition{Plugin: "intel.com/qat", Allocation: device.Allocation{Envs: map[string]string{"IDS": "x,z"}}, KubeletPaths: true}
		if diff := cmp.Diff(want, got[1]); diff != "" {
			t.Errorf("the container gets (-want +got):\n%s", diff)
		}
	}
	want := []string{"allocate intel.com/qat x,z", "prestart intel.com/qat x,z", "prestart intel.com/qat x,z"}
	if diff := cmp.Diff(want, d.asked); diff != "" {
		t.Errorf("the plugin was asked (-want +got):\n%s", diff)
	}
}

func TestAHostedPluginThatFailsIsAskedAgain(t *testing.T) {
	d := newDeviceplugins(serving(t, qat, "x"))
	h := runHosting(t, d)
	d.failure = errors.New("no firmware")
	for range 2 {
		if _, err := h.Allocate(t.Context(), claimOf("pod", hostedName(t, qat, "x"))); err == nil || !strings.Contains(err.Error(), "no firmware") {
			t.Errorf("a failure is told as %v", err)
		}
	}
	if diff := cmp.Diff([]string{"allocate intel.com/qat x", "allocate intel.com/qat x"}, d.asked); diff != "" {
		t.Errorf("the plugin was asked (-want +got):\n%s", diff)
	}
}

func TestAContainerAwaitsTheHostedPluginsOfItsDevices(t *testing.T) {
	d := newDeviceplugins(gone(t, qat, "x"))
	h := runHosting(t, d)
	h.Await(t.Context(), types.ResourceLocation{"r": card0}) // of a plugin file: nobody waits for it

	came := make(chan struct{})
	go func() {
		defer close(came)
		h.Await(t.Context(), types.ResourceLocation{"r": hostedName(t, qat, "x")})
	}()
	d.say(gone(t, qat, "x"), serving(t, "a.b/c", "x"))
	until(t, h, "another plugin", func(i *Inventory) bool { _, known := i.Allocatable("a.b/c"); return known })
	select {
	case <-came:
		t.Fatal("another plugin was taken for the one that is awaited")
	default:
	}
	d.say(serving(t, qat, "-x"))
	<-came
	inventory, _ := h.Inventory()
	if err := inventory.Missing(hostedName(t, qat, "x")); err != nil {
		t.Errorf("with the plugin there, something is missing: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h.Await(ctx, types.ResourceLocation{"r": hostedName(t, "no.such/plugin", "x")})
	if err := inventory.Missing(hostedName(t, "no.such/plugin", "x")); err == nil || !strings.Contains(err.Error(), "no device plugin of no.such/plugin has registered") {
		t.Errorf("without a plugin: %v", err)
	}
}

func TestADeviceAilsOnlyIfItsPluginSaysSo(t *testing.T) {
	d := newDeviceplugins(serving(t, qat, "well", "-sick"))
	h := runHosting(t, d)
	until(t, h, "all", func(i *Inventory) bool { return i.Complete })
	inventory, _ := h.Inventory()
	for name, want := range map[types.ResourceName]string{
		hostedName(t, qat, "well"):              "",
		hostedName(t, qat, "sick"):              "is unhealthy",
		hostedName(t, qat, "listed no more"):    "is gone",
		hostedName(t, "no.such/plugin", "x"):    "",
		card0:                                   "",
		"resource/group/gpu/no-such-card/cards": "is gone",
	} {
		if got := inventory.Ailing(name); got != want {
			t.Errorf("%s %q, want %q", name, got, want)
		}
	}
	d.say(gone(t, qat, "well"))
	until(t, h, "the plugin's absence", func(i *Inventory) bool { return !i.Complete })
	inventory, _ = h.Inventory()
	for _, name := range []types.ResourceName{hostedName(t, qat, "well"), hostedName(t, qat, "sick"), "resource/group/gpu/no-such-card/cards"} {
		if got := inventory.Ailing(name); got != "" {
			t.Errorf("with the plugin away, %s %q", name, got)
		}
	}
}
