// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"io/fs"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// cards is a device plugin with three cards, of which the last is sick.
type cards struct{ err error }

func (c *cards) New() error { return nil }

func (c *cards) Start() error { return nil }

func (c *cards) GetName() string { return "cards" }

func (c *cards) UpdateNodeInfo(info *types.NodeInfo) error {
	for i, name := range []types.ResourceName{card0, card1, sick} {
		info.Capacity[name] = 1
		if i < 2 {
			info.Allocatable[name] = 1
		}
	}
	info.Capacity[kind], info.Allocatable[kind], info.Scorer[kind] = 1, 1, 2
	info.KubeCap[gpu], info.KubeAlloc[gpu] = 3, 2
	return nil
}

func (c *cards) Allocate(
	_ *types.PodInfo,
	container *types.ContainerInfo,
) ([]device.Mount, []string, map[string]string, error) {
	var devices []string
	for _, name := range container.AllocateFrom {
		devices = append(devices, "/dev/gpu"+strings.Split(string(name), "/")[3])
	}
	return nil, devices, nil, c.err
}

// widgets is a second device plugin, with one widget.
type widgets struct{ cards }

func (w *widgets) GetName() string { return "widgets" }

func (w *widgets) UpdateNodeInfo(info *types.NodeInfo) error {
	info.Capacity[widget0], info.Allocatable[widget0] = 1, 1
	info.KubeCap[widget], info.KubeAlloc[widget] = 1, 1
	return nil
}

func (w *widgets) Allocate(
	_ *types.PodInfo,
	_ *types.ContainerInfo,
) ([]device.Mount, []string, map[string]string, error) {
	return nil, []string{"/dev/widget0"}, nil, nil
}

// knownPods is what the API server said of pods.
type knownPods map[string]pods.Pod

func (k knownPods) Get(uid string) (pods.Pod, bool) { pod, ok := k[uid]; return pod, ok }

func (k knownPods) Lookup(_ context.Context, uid string) (pods.Pod, error) {
	if pod, ok := k[uid]; ok {
		pod.Name = "pod-" + uid
		return pod, nil
	}
	return pods.Pod{}, fmt.Errorf("pod with UID %q: %w", uid, pods.ErrUnknown)
}

// nodePods are the known pods, with the device resources of the node.
type nodePods struct {
	knownPods
	*pods.Registry
}

func (n nodePods) Get(uid string) (pods.Pod, bool) { return n.knownPods.Get(uid) }

func (n nodePods) Lookup(ctx context.Context, uid string) (pods.Pod, error) {
	return n.knownPods.Lookup(ctx, uid)
}

// registryOf returns a registry that follows the plugins.
func registryOf(devices Devices) *pods.Registry {
	registry := pods.NewRegistry(0)
	registry.Follow(reported{devices})
	return registry
}

// devNodes is a file system where everything is a device node.
type devNodes struct{}

func (devNodes) Lstat(string) (fs.FileInfo, error) { return devNode{}, nil }

func (devNodes) Readlink(string) (string, error) { return "", fs.ErrInvalid }

func (devNodes) ReadDir(string) ([]fs.DirEntry, error) { return nil, fs.ErrInvalid }

type devNode struct{ fs.FileInfo }

func (devNode) Mode() fs.FileMode { return fs.ModeDevice | fs.ModeCharDevice }

// reported are what devices publish.
type reported struct{ devices Devices }

// ExtendedResources implements pods.Plugins.
func (r reported) ExtendedResources() ([]types.ResourceName, bool) {
	now, _ := r.devices.Inventory()
	return now.ExtendedResources(), now.Complete
}

// livePods are the pods of the API server that have not ended.
type livePods map[string]bool

// Active implements grants.Pods.
func (l livePods) Active(uid string) bool { return l[uid] }

// origin has the adopted pods of a fixture.
type origin struct{ f *fixture }

// Read implements grants.Origin.
func (o origin) Read() (grants.Foreign, error) { return o, nil }

// Merge implements grants.Foreign.
func (o origin) Merge(
	_ context.Context, _ map[string]grants.RuntimeState, allocations map[string]*grants.Allocation,
) {
	for _, a := range o.f.adopted {
		if o.f.live[a.PodUID] {
			allocations[a.PodUID] = &a
		}
	}
}

// kubelet is what a fixture's kubelet allocated.
type kubelet struct{ f *fixture }

// Injections implements Kubelet.
func (k kubelet) Injections(string, string) ([]firewall.KubeletInjection, error) {
	return k.f.injections, k.f.unknown
}

// Claims implements Kubelet.
func (k kubelet) Claims(string) (map[string]string, error) { return k.f.claimed, k.f.unknown }

// sandboxes are those of a fixture's runtime.
type sandboxes struct{ f *fixture }

// Annotations implements Sandboxes.
func (s sandboxes) Annotations(context.Context, string) (map[string]string, error) {
	return s.f.sandbox, s.f.unknown
}

// adoptedDevices are what the kubelet allocated to a container.
type adoptedDevices func(podUID, container string) ([]types.ResourceName, error)

// AllocatedTo implements Adopted.
func (a adoptedDevices) AllocatedTo(podUID, container string) ([]types.ResourceName, error) {
	return a(podUID, container)
}
