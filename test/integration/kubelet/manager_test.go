// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	_ "unsafe" // for go:linkname

	cadvisorapi "github.com/google/cadvisor/lib/model"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"

	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/test/await"
)

// newManager is what the kubelet's NewManagerImpl calls, with a directory that is not always the
// same.
//
//go:linkname newManager k8s.io/kubernetes/pkg/kubelet/cm/devicemanager.newManagerImpl
func newManager(
	logger klog.Logger, socket string, topology []cadvisorapi.Node, store topologymanager.Store,
) (*devicemanager.ManagerImpl, error)

// manager is the kubelet's device manager, with the part of its PodResources API that has devices.
type manager struct {
	podresourcesapi.UnimplementedPodResourcesListerServer
	*devicemanager.ManagerImpl
	directory string
	server    *grpc.Server

	mu   sync.Mutex
	pods []*corev1.Pod
}

// ready says that all pods are known.
type ready struct{}

func (ready) AddSource(string) {}
func (ready) AllReady() bool   { return true }

// startManager serves the kubelet's device manager in a directory until the test ends.
func startManager(t *testing.T, directory string) *manager {
	t.Helper()
	k := &manager{directory: directory}
	var err error
	logger := klog.Background()
	k.ManagerImpl, err = newManager(logger, k.socket(), nil, topologymanager.NewFakeManager(logger))
	if err != nil {
		t.Fatal(err)
	}
	err = k.Start(logger, k.active, ready{}, containermap.NewContainerMap(), sets.New[string]())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Stop(logger); err != nil {
			t.Error(err)
		}
	})
	listener, err := net.Listen("unix", k.podResources())
	if err != nil {
		t.Fatal(err)
	}
	k.server = grpc.NewServer()
	podresourcesapi.RegisterPodResourcesListerServer(k.server, k)
	var serving sync.WaitGroup
	serving.Go(func() { k.server.Serve(listener) }) //nolint:errcheck // it ends with Stop
	t.Cleanup(serving.Wait)
	t.Cleanup(k.server.Stop)
	return k
}

// socket is where plugins register, podResources that of the PodResources API, and checkpoint the
// file in which the kubelet remembers plugins.
func (k *manager) socket() string       { return filepath.Join(k.directory, "kubelet.sock") }
func (k *manager) podResources() string { return filepath.Join(k.directory, "pod-resources") }
func (k *manager) checkpoint() string   { return filepath.Join(k.directory, kubeletstate.CheckpointName) }

func (k *manager) active() []*corev1.Pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.pods)
}

// List implements the PodResources API: what pods hold does not matter in these tests.
func (k *manager) List(
	context.Context, *podresourcesapi.ListPodResourcesRequest,
) (*podresourcesapi.ListPodResourcesResponse, error) {
	return &podresourcesapi.ListPodResourcesResponse{}, nil
}

// GetAllocatableResources implements the PodResources API.
func (k *manager) GetAllocatableResources(
	context.Context, *podresourcesapi.AllocatableResourcesRequest,
) (*podresourcesapi.AllocatableResourcesResponse, error) {
	response := &podresourcesapi.AllocatableResourcesResponse{}
	for name, devices := range k.GetAllocatableDevices(klog.Background()) {
		response.Devices = append(response.Devices, &podresourcesapi.ContainerDevices{
			ResourceName: name, DeviceIds: slices.Sorted(maps.Keys(devices)),
		})
	}
	return response, nil
}

// has waits until the kubelet would allocate these devices of gpu, and no others.
func (k *manager) has(t *testing.T, ids ...string) {
	t.Helper()
	eventually(t, func() error {
		got := slices.Sorted(maps.Keys(k.GetAllocatableDevices(klog.Background())[string(gpu)]))
		if !slices.Equal(got, ids) {
			return fmt.Errorf("the kubelet would allocate %v of %s, want %v", got, gpu, ids)
		}
		return nil
	})
}

// admit admits a pod that requests one of gpu, as the kubelet does when the pod is bound to the
// node.
func (k *manager) admit(t *testing.T, name string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: apitypes.UID(name)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
				corev1.ResourceName(gpu): resource.MustParse("1"),
			}},
		}}},
	}
	k.mu.Lock()
	k.pods = append(k.pods, pod)
	k.mu.Unlock()
	if err := k.Allocate(t.Context(), pod, &pod.Spec.Containers[0], lifecycle.AddOperation); err != nil {
		t.Errorf("the kubelet fails pod %s: %v", name, err)
	}
}

// allocated returns the ID that the kubelet allocated to a pod.
func (k *manager) allocated(name string) string {
	return strings.Join(slices.Sorted(maps.Keys(k.GetDevices(name, "main")[string(gpu)])), ",")
}

// timeout is for a condition on a slow, busy machine.
const timeout = time.Minute

// eventually waits until the condition returns no error any more.
func eventually(t *testing.T, condition func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := await.Success(ctx, "a condition", func(context.Context) error { return condition() }); err != nil {
		t.Fatal(err)
	}
}

// tempDirectory is short enough for sockets below it.
func tempDirectory(t *testing.T) string {
	t.Helper()
	directory, err := os.MkdirTemp("", "ku")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(directory) })
	return directory
}
