// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice/fakeplugin"
	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const nic, other types.ResourceName = "vendor.example/nic", "vendor.example/other"

// nicKubelet answers for the PodResources API of a kubelet that has a plugin of nic, or none.
type nicKubelet struct {
	podresourcesapi.UnimplementedPodResourcesListerServer
	has atomic.Bool
}

// List implements the API.
func (*nicKubelet) List(
	context.Context, *podresourcesapi.ListPodResourcesRequest,
) (*podresourcesapi.ListPodResourcesResponse, error) {
	return &podresourcesapi.ListPodResourcesResponse{}, nil
}

// GetAllocatableResources implements the API.
func (k *nicKubelet) GetAllocatableResources(
	context.Context, *podresourcesapi.AllocatableResourcesRequest,
) (*podresourcesapi.AllocatableResourcesResponse, error) {
	if !k.has.Load() {
		return &podresourcesapi.AllocatableResourcesResponse{}, nil
	}
	return &podresourcesapi.AllocatableResourcesResponse{Devices: []*podresourcesapi.ContainerDevices{
		{ResourceName: string(nic), DeviceIds: []string{"eth1", "eth0"}},
	}}, nil
}

// The node has a plugin file of a GPU, and a kubelet with a plugin of nic.
func TestAResourceOfTwoPluginsIsInReadinessEventAndMetric(t *testing.T) {
	for name, c := range map[string]struct {
		resource types.ResourceName
		later    bool // the kubelet's plugin comes after the one here
		says     string
		offered  map[types.ResourceName]bool // by kubecri
	}{
		"a plugin file and a plugin that registers here": {
			gpuCount, false, `example.com/gpu is claimed by device plugins "one-gpu" and "example.com/gpu"`,
			map[types.ResourceName]bool{gpuCount: true},
		},
		"a plugin at the kubelet and one that registers here": {
			nic, false, "resource vendor.example/nic is registered with the kubelet, too, which has its device eth0",
			map[types.ResourceName]bool{gpuCount: true},
		},
		"a plugin that registers here and one that comes to the kubelet": {
			nic, true, "resource vendor.example/nic is registered with the kubelet, too, which has its device eth0",
			map[types.ResourceName]bool{gpuCount: true, other: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			upstream, err := criproxy.Dial(filepath.Join(dir, "runtime.sock"))
			if err != nil {
				t.Fatal(err)
			}
			defer upstream.Close()
			options := standalone(dir)
			options.KubeletDir, options.loadPlugins = filepath.Join(dir, "kubelet"), loadOneGPU
			kubelet := serveNICKubelet(t, options.kubeletPodResourcesPath())
			kubelet.has.Store(!c.later)
			ctx, cancel := context.WithCancel(context.Background())
			n := newNode(ctx, options, "", upstream)
			defer n.wait(ctx)
			defer cancel()
			client := fake.NewClientset()
			sent := make(chan *corev1.Event, 10)
			client.PrependReactor("create", "events",
				func(action clienttesting.Action) (bool, apiruntime.Object, error) {
					event := action.(clienttesting.CreateAction).GetObject().(*corev1.Event)
					sent <- event
					return true, event, nil
				})
			n.events.sendTo(client)
			n.running.Go(func() { n.files.Run(ctx) })
			n.running.Go(func() { n.plugins.Run(ctx) })
			n.running.Go(func() { n.deviceManager.Run(ctx) })
			n.running.Go(func() { n.adoption.Run(ctx) })
			n.running.Go(func() { n.followInventory(ctx) })
			awaitOK(t, n.plugins.Check)
			p := fakeplugin.New(fakeplugin.Device("x"))
			if _, err := p.Serve(filepath.Join(options.devicePluginsDir(), "p.sock")); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Stop)
			register := func(resource types.ResourceName) {
				t.Helper()
				socket := filepath.Join(options.devicePluginsDir(), "kubelet.sock")
				if err := fakeplugin.Register(t.Context(), socket, "p.sock", resource); err != nil {
					t.Fatal(err)
				}
			}
			register(c.resource)
			if c.later {
				awaitOK(t, func() error {
					if names, _ := n.registry.DeviceResources(); !names[nic] {
						return fmt.Errorf("pods that request %s are not kubecri's before", nic)
					}
					return nil
				})
				kubelet.has.Store(true)
				register(other) // so that the kubelet is looked at
			}
			select {
			case event := <-sent:
				about := event.InvolvedObject
				if about.Kind != "Node" || about.Name != "node-1" || event.Reason != reasonConflict ||
					!strings.Contains(event.Message, c.says) {
					t.Errorf("the event is %v", event)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("there is no event after 20s")
			}
			if got := conflictsOf(t, n); !slices.Equal(got, []string{string(c.resource)}) {
				t.Errorf("the metric has %q", got)
			}
			if err := n.plugins.Check(); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("readiness says %v", err)
			}
			awaitOK(t, func() error {
				if got, known := n.registry.DeviceResources(); !maps.Equal(got, c.offered) || !known {
					return fmt.Errorf("pods that request %v are kubecri's (known: %t), want %v", got, known, c.offered)
				}
				return nil
			})
		})
	}
}

// awaitOK waits until the check returns nil.
func awaitOK(t *testing.T, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// serveNICKubelet serves a nicKubelet at the socket.
func serveNICKubelet(t *testing.T, socket string) *nicKubelet {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	kubelet, server := &nicKubelet{}, grpc.NewServer()
	podresourcesapi.RegisterPodResourcesListerServer(server, kubelet)
	go server.Serve(listener) //nolint:errcheck // it ends with Stop
	t.Cleanup(server.Stop)
	return kubelet
}

// conflictsOf returns the resources of kubecri_resource_conflicts, sorted.
func conflictsOf(t *testing.T, n *node) (resources []string) {
	t.Helper()
	families, err := n.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "kubecri_resource_conflicts" {
			for _, metric := range family.GetMetric() {
				resources = append(resources, metric.GetLabel()[0].GetValue())
			}
		}
	}
	return resources
}
