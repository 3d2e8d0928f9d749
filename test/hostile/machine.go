// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	sdkresource "github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/gpu"
)

// Machine is a kind of node.
type Machine int

// The machines.
const (
	// EightGPUs has 8 GPUs in pairs, two pairs to a socket.
	EightGPUs Machine = iota
	// SixtyFourGPUs has 64 GPUs in fours, four of these to a board.
	SixtyFourGPUs
	// ManyDevices has 1,500 devices of one kubelet device plugin, on two NUMA nodes.
	ManyDevices
	// HostedDevices has 8 devices of each of 2 kubelet device plugins, on two NUMA nodes.
	HostedDevices
	// ManyNUMANodes has 16 NUMA nodes, with 8 devices of each of 4 kubelet device plugins.
	ManyNUMANodes

	machines
)

// Machines returns all machines.
func Machines() []Machine {
	all := make([]Machine, machines)
	for i := range all {
		all[i] = Machine(i)
	}
	return all
}

// String describes the machine.
func (m Machine) String() string {
	return [machines]string{"8 GPUs", "64 GPUs", "1,500 devices", "2 NUMA nodes", "16 NUMA nodes"}[m]
}

// gpuMemory is what a GPU has, in bytes.
const gpuMemory = 80 << 30

// plugins returns the number of kubelet device plugins.
func (m Machine) plugins() int { return [machines]int{0, 0, 1, 2, 4}[m] }

// hosted returns the extended resource of a kubelet device plugin.
func hosted(number int) types.ResourceName {
	return types.ResourceName(fmt.Sprintf("a.example/r%d", number))
}

// hasGPUs reports whether the machine's devices are GPUs.
func (m Machine) hasGPUs() bool { return m == EightGPUs || m == SixtyFourGPUs }

// devices returns the number of devices of the machine, of each plugin.
func (m Machine) devices() int { return [machines]int{8, 64, 1500, 8, 128}[m] }

// info returns the inventory of a node. Nodes of different states differ in what is in use from
// outside Kubernetes, each device in another way.
func (m Machine) info(name string, state int) *types.NodeInfo {
	info := types.NewNodeInfoWithName(name)
	switch m {
	case EightGPUs, SixtyFourGPUs:
		close := map[Machine]int{EightGPUs: 2, SixtyFourGPUs: 4}[m]
		gpus, numbers := make([]gpu.GPU, m.devices()), map[string]int64{}
		for i := range gpus {
			groups := []int{i / close, i / close / close}
			gpus[i] = gpu.GPU{ID: fmt.Sprintf("G%02d", i), Memory: gpuMemory, Groups: groups}
			numbers[gpus[i].ID] = int64(i)
		}
		gpu.Publish(info, gpu.Resource, gpus)
		for name := range info.Allocatable {
			if id, kind, ok := gpu.Split(name); ok && kind == gpu.Memory {
				info.Used[name] = gpuMemory - (10_000 + numbers[id] + int64(state)*100)
			}
		}
	case ManyDevices:
		for i := range m.devices() {
			m.host(info, 0, i, i%2, state)
		}
	case HostedDevices, ManyNUMANodes:
		numa := map[Machine]int{HostedDevices: 2, ManyNUMANodes: 16}[m]
		for plugin := range m.plugins() {
			for i := range m.devices() {
				m.host(info, plugin, i, i%numa, state)
			}
		}
	}
	info.Capacity["a.example/states"] = int64(1 + state) // no two nodes are alike
	return info
}

// host adds a device of a kubelet device plugin to a node.
func (Machine) host(info *types.NodeInfo, plugin, number, numa, state int) {
	device := kubeletdevice.Device{Resource: hosted(plugin), ID: fmt.Sprint(number), NUMA: []int{numa}}
	name, err := kubeletdevice.Name(device)
	if err != nil {
		panic(err)
	}
	info.Capacity[name], info.Allocatable[name] = 1, 1
	info.Capacity[hosted(plugin)]++
	info.Allocatable[hosted(plugin)]++
	if number == state%8 { // one is in use
		info.Used[name] = 1
	}
}

// Node returns a node of the machine. Nodes of different states differ in what is in use.
func (m Machine) Node(name string, state int) (*corev1.Node, error) {
	annotation, err := deviceinfo.EncodeNode(m.info(name, state))
	if err != nil {
		return nil, err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: apitypes.UID(name), ResourceVersion: "1",
		Annotations: map[string]string{deviceinfo.Annotation: annotation},
	}}
	node.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("256"), corev1.ResourceMemory: resource.MustParse("1Ti"),
		corev1.ResourcePods: resource.MustParse("250"),
	}
	node.Status.Capacity = node.Status.Allocatable
	return node, nil
}

// victim returns a pod that holds a part of a node's devices: some memory of a GPU, or some other
// devices.
func (m Machine) victim(node string, number int) (*corev1.Pod, error) {
	name := fmt.Sprintf("%s-v%03d", node, number)
	held := types.ContainerInfo{DevRequests: types.ResourceList{}, AllocateFrom: types.ResourceLocation{}}
	take := func(device types.ResourceName, quantity int64) {
		held.DevRequests[device], held.AllocateFrom[device] = quantity, device
	}
	all := m.info(node, 0)
	names := slices.Sorted(maps.Keys(all.Allocatable))
	names = slices.DeleteFunc(names, func(name types.ResourceName) bool {
		_, kind, isGPU := gpu.Split(name)
		return !sdkresource.IsGroupResourceName(name) || isGPU && kind == gpu.Cards
	})
	if m.hasGPUs() {
		take(names[number%len(names)], int64(100+number))
	} else {
		for i := number; i < len(names); i += 110 {
			take(names[i], 1)
		}
	}
	annotation, err := deviceinfo.EncodePod(&types.PodInfo{
		Name: name, NodeName: node, RunningContainers: map[string]types.ContainerInfo{"main": held},
	})
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: metav1.NamespaceDefault, UID: apitypes.UID(name), ResourceVersion: "1",
		Annotations: map[string]string{deviceinfo.Annotation: annotation},
	}}
	pod.Spec.NodeName = node
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "busybox"}}
	return pod, nil
}
