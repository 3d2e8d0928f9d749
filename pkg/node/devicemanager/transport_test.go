// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// deviceplugins stands for kubelet device plugins, and for the cache of their responses.
type deviceplugins struct {
	mu      sync.Mutex
	states  []State
	changed chan struct{}
	calls   []string
	failure error
	cached  map[string][]byte
}

func newDeviceplugins(states ...State) *deviceplugins {
	return &deviceplugins{states: states, changed: make(chan struct{}), cached: map[string][]byte{}}
}

func (d *deviceplugins) States() ([]State, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.states, d.changed
}

func (d *deviceplugins) note(call string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, call)
	return d.failure
}

func (d *deviceplugins) Allocate(
	_ context.Context, resource types.ResourceName, ids []string, _ string,
) ([]byte, error) {
	if err := d.note("allocate " + string(resource) + " " + strings.Join(ids, ",")); err != nil {
		return nil, err
	}
	return proto.Marshal(&pluginapi.ContainerAllocateResponse{Envs: map[string]string{"IDS": strings.Join(ids, ",")}})
}

func (d *deviceplugins) PreStart(_ context.Context, resource types.ResourceName, ids []string) error {
	return d.note("prestart " + string(resource) + " " + strings.Join(ids, ","))
}

func (d *deviceplugins) Get(podUID, container, key string) ([]byte, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	response, cached := d.cached[podUID+container+key]
	return response, cached
}

func (d *deviceplugins) Put(podUID, container, key string, response []byte) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if before, cached := d.cached[podUID+container+key]; cached {
		return before, nil
	}
	d.cached[podUID+container+key] = response
	return response, nil
}

// servedState is the state of a resource with healthy devices of those IDs.
func servedState(t *testing.T, resource types.ResourceName, ids ...string) State {
	t.Helper()
	var devices []entry
	for _, id := range ids {
		d, err := newEntry(kubeletdevice.Device{Resource: resource, ID: id, NUMA: []int{0}})
		if err != nil {
			t.Fatal(err)
		}
		d.healthy = true
		devices = append(devices, d)
	}
	return State{resource, plugins.State{Info: infoOf(resource, devices, true), Serving: true, Reported: true}}
}

func nameOf(t *testing.T, resource types.ResourceName, id string) types.ResourceName {
	t.Helper()
	name, err := kubeletdevice.Name(kubeletdevice.Device{Resource: resource, ID: id, NUMA: []int{0}})
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// manage runs a manager of the plugins until the test ends.
func manage(t *testing.T, d *deviceplugins) *plugins.Manager {
	t.Helper()
	m := plugins.New("node-1", NewTransport(d, d))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	<-m.Synced()
	return m
}

func claimOf(pod string, names ...types.ResourceName) plugins.Claim {
	container := &types.ContainerInfo{AllocateFrom: types.ResourceLocation{}}
	for _, name := range names {
		container.AllocateFrom["request of "+name] = name
	}
	return plugins.Claim{PodUID: pod, ContainerName: "main", Pod: types.NewPodInfo(), Container: container}
}

func TestADeviceOfAPluginIsLateByItsName(t *testing.T) {
	transport := NewTransport(newDeviceplugins(), nil)
	for name, want := range map[types.ResourceName]string{
		nameOf(t, qat, "x"): "intel.com/qat", "intel.com/qat": "", "resource/group/gpu/0/cards": "",
	} {
		if label, late := transport.Late(name); label != want || late != (want != "") {
			t.Errorf("%s is of %q, %v; want %q", name, label, late, want)
		}
	}
}

func TestTheManagerHasWhatAPluginLists(t *testing.T) {
	lost := servedState(t, "a.b/c", "z")
	lost.Serving, lost.Err = false, errors.New("the device plugin of a.b/c is gone")
	m := manage(t, newDeviceplugins(servedState(t, qat, "x"), lost))
	inventory, _ := m.Inventory()
	if got, known := inventory.Allocatable(nameOf(t, qat, "x")); got != 1 || !known {
		t.Errorf("a device that is listed: %d allocatable, known %v", got, known)
	}
	if err := inventory.Missing(nameOf(t, qat, "x")); err != nil {
		t.Errorf("a device whose plugin serves: %v", err)
	}
	if err := inventory.Missing(nameOf(t, "a.b/c", "z")); !errors.Is(err, lost.Err) {
		t.Errorf("a device whose plugin is gone: %v", err)
	}
	if err := m.Check(); !errors.Is(err, lost.Err) {
		t.Errorf("health says %v", err)
	}
}

func TestAllocateIsCalledOncePerContainer(t *testing.T) {
	d := newDeviceplugins(servedState(t, qat, "x", "y", "z"))
	m := manage(t, d)
	for _, fresh := range []bool{true, false} {
		got, err := m.Allocate(t.Context(), claimOf("pod", nameOf(t, qat, "z"), nameOf(t, qat, "x")))
		if err != nil {
			t.Fatal(err)
		}
		want := inject.Addition{Plugin: "intel.com/qat",
			Allocation: device.Allocation{Envs: map[string]string{"IDS": "x,z"}}, KubeletPaths: true, Fresh: fresh}
		if diff := cmp.Diff(want, got[0]); diff != "" {
			t.Errorf("the container gets (-want +got):\n%s", diff)
		}
	}
	want := []string{"allocate intel.com/qat x,z", "prestart intel.com/qat x,z", "prestart intel.com/qat x,z"}
	if diff := cmp.Diff(want, d.calls); diff != "" {
		t.Errorf("the plugin was asked (-want +got):\n%s", diff)
	}
}

// A response that is cached late, or not dropped because kubecri was killed, is not taken for that
// of the devices that the container was given since.
func TestAResponseForOtherDevicesIsNotUsed(t *testing.T) {
	d := newDeviceplugins(servedState(t, qat, "x", "y"))
	m := manage(t, d)
	for _, id := range []string{"x", "y", "x"} {
		got, err := m.Allocate(t.Context(), claimOf("pod", nameOf(t, qat, id)))
		if err != nil || got[0].Envs["IDS"] != id {
			t.Errorf("a container with %s gets %v, %v", id, got, err)
		}
	}
	d.cached["old"+"main"+string(qat)], _ = proto.Marshal(
		&pluginapi.ContainerAllocateResponse{Envs: map[string]string{"IDS": "of v0.1.0"}})
	if got, err := m.Allocate(t.Context(), claimOf("old", nameOf(t, qat, "x"))); err != nil ||
		got[0].Envs["IDS"] != "of v0.1.0" {
		t.Errorf("a container whose response the release before has cached gets %v, %v", got, err)
	}
}

func TestAFailedAllocateIsCalledAgain(t *testing.T) {
	d := newDeviceplugins(servedState(t, qat, "x"))
	m := manage(t, d)
	d.failure = errors.New("no firmware")
	for range 2 {
		if _, err := m.Allocate(t.Context(), claimOf("pod", nameOf(t, qat, "x"))); err == nil ||
			!strings.Contains(err.Error(), "no firmware") {
			t.Errorf("a failure is reported as %v", err)
		}
	}
	if diff := cmp.Diff([]string{"allocate intel.com/qat x", "allocate intel.com/qat x"}, d.calls); diff != "" {
		t.Errorf("the plugin was asked (-want +got):\n%s", diff)
	}
}
