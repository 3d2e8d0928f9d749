// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// fakeKubelet answers for the kubelet's PodResources API.
type fakeKubelet struct {
	podresourcesapi.UnimplementedPodResourcesListerServer

	mu      sync.Mutex
	devices []*podresourcesapi.ContainerDevices
	held    map[types.ResourceName]bool // by a pod
	gone    bool                        // the pod, which the kubelet has not noticed
}

func startKubelet(t *testing.T, socket string) *fakeKubelet {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	k := &fakeKubelet{}
	server := grpc.NewServer()
	podresourcesapi.RegisterPodResourcesListerServer(server, k)
	go server.Serve(listener) //nolint:errcheck // it ends with Stop
	t.Cleanup(server.Stop)
	return k
}

func (k *fakeKubelet) serve(resource types.ResourceName, ids ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.devices = []*podresourcesapi.ContainerDevices{{ResourceName: string(resource), DeviceIds: ids}}
}

func (k *fakeKubelet) GetAllocatableResources(context.Context,
	*podresourcesapi.AllocatableResourcesRequest) (*podresourcesapi.AllocatableResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return &podresourcesapi.AllocatableResourcesResponse{Devices: k.devices}, nil
}

// List implements the API. The kubelet notices here that a pod is gone.
func (k *fakeKubelet) List(context.Context,
	*podresourcesapi.ListPodResourcesRequest) (*podresourcesapi.ListPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone {
		clear(k.held)
	}
	pod := &podresourcesapi.PodResources{Namespace: "default", Name: "train",
		Containers: []*podresourcesapi.ContainerResources{{Name: "idle"}, {Name: "main"}}}
	for resource := range k.held {
		pod.Containers[1].Devices = append(pod.Containers[1].Devices,
			&podresourcesapi.ContainerDevices{ResourceName: string(resource), DeviceIds: []string{"a"}})
	}
	return &podresourcesapi.ListPodResourcesResponse{PodResources: []*podresourcesapi.PodResources{pod}}, nil
}

// admits returns why the kubelet would fail a pod that requests a resource which no plugin serves
// at the kubelet.
func (k *fakeKubelet) admits(resource types.ResourceName) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held[resource] {
		return fmt.Errorf("cannot allocate unregistered device %s", resource)
	}
	return nil
}

// The kubelet has forgotten the plugin, and a pod still holds a device that the kubelet gave it; or
// it is gone, and the kubelet has not noticed.
func TestAResourceOfWhichAPodHoldsADeviceOfTheKubeletsIsOfferedWhenTheKubeletAdmitsOthers(t *testing.T) {
	directory := tempDirectory(t)
	socket := filepath.Join(directory, "kubelet.sock")
	kubelet := startKubelet(t, socket)
	kubelet.held = map[types.ResourceName]bool{qat: true}
	served := FromKubelet(socket, filepath.Join(directory, "no-checkpoint"))
	h := startManager(t, directory, func(o *Options) { o.KubeletResources = served })
	mustRegister(t, h, startPlugin(t, h.socket("p.sock"), dev("a")), qat)
	mustRegister(t, h, startPlugin(t, h.socket("q.sock"), dev("a")), gpu)
	h.has(t, gpu, map[string]bool{"none/a": true})
	eventually(t, func() error {
		if err := h.state(qat).ErrWithheld(); err == nil || !strings.Contains(err.Error(),
			"pod default/train holds a device of intel.com/qat that the kubelet has allocated") {
			return fmt.Errorf("the state says %v", err)
		}
		return nil
	})
	h.has(t, qat, nil)

	kubelet.mu.Lock()
	kubelet.gone = true
	kubelet.mu.Unlock()
	now, err := served.Resources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.updateConflicts(t.Context(), now)
	h.has(t, qat, map[string]bool{"none/a": true})
	if err := kubelet.admits(qat); err != nil {
		t.Errorf("it is offered, and the kubelet says %v", err)
	}
}

func TestAResourceThatTheKubeletServesIsOfferedWhenItsPluginHasLeft(t *testing.T) {
	directory := tempDirectory(t)
	socket := filepath.Join(directory, "kubelet.sock")
	h := startManager(t, directory, func(o *Options) {
		o.KubeletResources = FromKubelet(socket, filepath.Join(directory,
			"no-checkpoint"))
	})
	p := startPlugin(t, h.socket("p.sock"), dev("a"))
	mustRegister(t, h, p, gpu) // there is no kubelet yet
	h.has(t, gpu, map[string]bool{"none/a": true})

	kubelet := startKubelet(t, socket)
	kubelet.serve(qat, "b", "c")
	mustRegister(t, h, p, qat)
	eventually(t, func() error {
		if err := h.state(qat).ErrWithheld(); err == nil || !strings.Contains(err.Error(),
			"resource intel.com/qat is registered with the kubelet, too, which has its device b") {
			return fmt.Errorf("the state says %v", err)
		}
		return nil
	})
	h.has(t, qat, nil)

	kubelet.serve(qat) // its plugin has left: the kubelet has the resource without a device
	known, err := h.ReadKubelet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.updateConflicts(t.Context(), known)
	h.has(t, qat, map[string]bool{"none/a": true})
}

// served is what a kubelet serves that nobody else asks.
type served struct {
	mu  sync.Mutex
	has map[types.ResourceName]KubeletHolding
}

func (s *served) Resources(context.Context) (map[types.ResourceName]KubeletHolding, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.has, nil
}

// set has the kubelet serve something else, and the manager notice.
func (s *served) set(t *testing.T, h *testManager, has map[types.ResourceName]KubeletHolding) {
	t.Helper()
	s.mu.Lock()
	s.has = has
	s.mu.Unlock()
	h.updateConflicts(t.Context(), has)
}

func TestAResourceThatTheKubeletBeginsToServeIsOfferedNoMore(t *testing.T) {
	kubelet := &served{}
	h := startManager(t, tempDirectory(t), func(o *Options) { o.KubeletResources = kubelet })
	mustRegister(t, h, startPlugin(t, h.socket("p.sock"), dev("a")), qat)
	mustRegister(t, h, startPlugin(t, h.socket("q.sock"), dev("a")), gpu)
	h.has(t, qat, map[string]bool{"none/a": true})
	h.has(t, gpu, map[string]bool{"none/a": true})

	kubelet.set(t, h, map[types.ResourceName]KubeletHolding{qat: {Device: "b"}})
	h.has(t, qat, nil)
	h.has(t, gpu, map[string]bool{"none/a": true})
	if s := h.state(qat); s.Err != nil || s.ErrWithheld() == nil ||
		!strings.Contains(s.ErrWithheld().Error(), "registered with the kubelet, too") {
		t.Errorf("the state says %v, %v", s.Err, s.ErrWithheld())
	}
	kubelet.set(t, h, nil)
	h.has(t, qat, map[string]bool{"none/a": true})
}

// The kubelet's plugin leaves before it is looked at again: it may be restarting.
func TestAPluginThatRegistersWhileTheKubeletServesIsNotTakenOverAtOnce(t *testing.T) {
	kubelet := &served{has: map[types.ResourceName]KubeletHolding{qat: {Device: "b"}}}
	h := startManager(t, tempDirectory(t), func(o *Options) { o.KubeletResources = kubelet })
	mustRegister(t, h, startPlugin(t, h.socket("p.sock"), dev("a")), qat)
	kubelet.set(t, h, map[types.ResourceName]KubeletHolding{qat: {}})
	eventually(t, func() error {
		if h.state(qat).ErrWithheld() == nil {
			return fmt.Errorf("the plugin has not listed its devices")
		}
		return nil
	})
	if contested := h.Contest(nothing); len(contested) > 0 {
		t.Errorf("%v is taken over at once", contested)
	}
	h.clock.Step(RivalInterval)
	if contested := h.Contest(nothing); len(contested) != 1 {
		t.Errorf("after a while %v is taken over", contested)
	}
}

func TestAPluginThatMovesToTheKubeletIsForgottenAtOnce(t *testing.T) {
	kubelet := &served{}
	h := startManager(t, tempDirectory(t), func(o *Options) { o.KubeletResources = kubelet })
	p := startPlugin(t, h.socket("p.sock"), dev("a"))
	mustRegister(t, h, p, qat)
	h.has(t, qat, map[string]bool{"none/a": true})
	p.Stop()
	h.has(t, qat, map[string]bool{"none/a": false})

	kubelet.set(t, h, map[types.ResourceName]KubeletHolding{qat: {Device: "a"}})
	h.has(t, qat, nil)
	if s := h.state(qat); s.Err != nil || s.ErrWithheld() != nil {
		t.Errorf("the state says %v, %v", s.Err, s.ErrWithheld())
	}
}

func TestAResourceThatTheKubeletStillRemembersIsOfferedWhenItHasForgotten(t *testing.T) {
	directory := tempDirectory(t)
	checkpoint := filepath.Join(directory, "checkpoint")
	content := `{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"intel.com/qat":[],"a.b/c":["x"]}},"Checksum":1}`
	if err := os.WriteFile(checkpoint, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	served := FromKubelet(filepath.Join(directory, "no-socket"), checkpoint)
	h := startManager(t, directory, func(o *Options) { o.KubeletResources = served })
	mustRegister(t, h, startPlugin(t, h.socket("p.sock"), dev("a")), qat)
	eventually(t, func() error {
		if err := h.state(qat).ErrWithheld(); err == nil || !strings.Contains(err.Error(),
			"the kubelet still remembers a device plugin of intel.com/qat") {
			return fmt.Errorf("the state says %v", err)
		}
		return nil
	})
	h.has(t, qat, nil)

	if err := os.WriteFile(checkpoint, []byte(`{"Data":{"RegisteredDevices":{"a.b/c":["x"]}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	now, err := served.Resources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.updateConflicts(t.Context(), now)
	h.has(t, qat, map[string]bool{"none/a": true})
	if s := h.state(qat); s.Err != nil || s.ErrWithheld() != nil {
		t.Errorf("after that the state says %v, %v", s.Err, s.ErrWithheld())
	}
}

// A plugin that leaves while the kubelet remembers its resource is gone: two do not claim it.
func TestAPluginThatLeavesWhileTheKubeletHasItsResourceIsGone(t *testing.T) {
	kubelet := &served{}
	h := startManager(t, tempDirectory(t), func(o *Options) { o.KubeletResources = kubelet })
	p := startPlugin(t, h.socket("p.sock"), dev("a"))
	mustRegister(t, h, p, qat)
	h.has(t, qat, map[string]bool{"none/a": true})
	kubelet.set(t, h, map[types.ResourceName]KubeletHolding{qat: {}})
	if s := h.state(qat); s.Err != nil || s.ErrWithheld() == nil {
		t.Errorf("while both have it, the state says %v, %v", s.Err, s.ErrWithheld())
	}
	p.Stop()
	eventually(t, func() error {
		if s := h.state(qat); s.Err == nil || s.ErrWithheld() != nil {
			return fmt.Errorf("the state says %v, %v", s.Err, s.ErrWithheld())
		}
		return nil
	})
}

func TestADeviceThatIsWithheldSaysWhy(t *testing.T) {
	h := startManager(t, tempDirectory(t))
	mustRegister(t, h, startPlugin(t, h.socket("p.sock"), dev("a"), dev("b")), qat)
	h.has(t, qat, map[string]bool{"none/a": true, "none/b": true})
	h.Withhold(map[types.ResourceName]string{"resource/group/numa/none/intel.com:qat/a/device": "a pod has it"})
	h.has(t, qat, map[string]bool{"none/a": false, "none/b": true})
	id := "resource/group/numa/none/intel.com:qat/a"
	want := map[string]device.Health{id: {Device: id, Reason: plugins.ReasonWithheld, Message: "a pod has it"}}
	if diff := cmp.Diff(want, h.state(qat).Health); diff != "" {
		t.Errorf("the health of devices (-want +got):\n%s", diff)
	}
}
