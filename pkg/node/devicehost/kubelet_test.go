// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicehost

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// fakeKubelet answers for the kubelet's PodResources API.
type fakeKubelet struct {
	podresourcesapi.UnimplementedPodResourcesListerServer

	mu      sync.Mutex
	devices []*podresourcesapi.ContainerDevices
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
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return k
}

func (k *fakeKubelet) serve(resource types.ResourceName, ids ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.devices = []*podresourcesapi.ContainerDevices{{ResourceName: string(resource), DeviceIds: ids}}
}

func (k *fakeKubelet) GetAllocatableResources(context.Context, *podresourcesapi.AllocatableResourcesRequest) (*podresourcesapi.AllocatableResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return &podresourcesapi.AllocatableResourcesResponse{Devices: k.devices}, nil
}

func TestAResourceThatTheKubeletServesIsRefused(t *testing.T) {
	folder := tempFolder(t)
	socket := filepath.Join(folder, "kubelet.sock")
	h := startHost(t, folder, func(o *Options) { o.Served = FromKubelet(socket) })
	p := startPlugin(t, h.socket("p.sock"), dev("a"))
	mustRegister(t, h, p, gpu) // there is no kubelet yet
	h.has(t, gpu, map[string]bool{"none/a": true})

	kubelet := startKubelet(t, socket)
	kubelet.serve(qat, "b")
	err := p.register(t, h.Host, qat)
	if status.Code(err) != codes.AlreadyExists || !strings.Contains(err.Error(), "resource intel.com/qat is registered with the kubelet, too, which has its device b") {
		t.Errorf("the plugin was told %v", err)
	}
	kubelet.serve(qat) // its plugin has left: the kubelet has the resource without a device
	mustRegister(t, h, p, qat)
	h.has(t, qat, map[string]bool{"none/a": true})
}

func TestAResourceThatTheKubeletBeginsToServeIsOfferedNoMore(t *testing.T) {
	h := startHost(t, tempFolder(t))
	mustRegister(t, h, startPlugin(t, h.socket("p.sock"), dev("a")), qat)
	mustRegister(t, h, startPlugin(t, h.socket("q.sock"), dev("a")), gpu)
	h.has(t, qat, map[string]bool{"none/a": true})
	h.has(t, gpu, map[string]bool{"none/a": true})

	h.noteServed(t.Context(), map[types.ResourceName]string{qat: "b"})
	h.has(t, qat, nil)
	h.has(t, gpu, map[string]bool{"none/a": true})
	if err := h.state(qat).Err; err == nil || !strings.Contains(err.Error(), "registered with the kubelet, too") {
		t.Errorf("the state says %v", err)
	}
	h.noteServed(t.Context(), nil)
	h.has(t, qat, map[string]bool{"none/a": true})
}

func TestAPluginThatMovesToTheKubeletIsForgottenAtOnce(t *testing.T) {
	h := startHost(t, tempFolder(t))
	p := startPlugin(t, h.socket("p.sock"), dev("a"))
	mustRegister(t, h, p, qat)
	h.has(t, qat, map[string]bool{"none/a": true})
	p.kill()
	h.has(t, qat, map[string]bool{"none/a": false})

	h.noteServed(t.Context(), map[types.ResourceName]string{qat: "a"})
	h.has(t, qat, nil)
	if err := h.state(qat).Err; err != nil {
		t.Errorf("the state says %v", err)
	}
}
