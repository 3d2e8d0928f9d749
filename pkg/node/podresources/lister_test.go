// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/testing/protocmp"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	alphaapi "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const (
	gpu0 = "resource/group/numa/0/nvidia.com:gpu/GPU-0/device"
	gpu1 = "resource/group/numa/1/nvidia.com:gpu/GPU-1/device"
	nic  = "resource/group/numa/0-1/vendor.example:nic/eth0%2F1/device"
	qat  = "resource/group/numa/none/intel.com:qat/0000:3d:01.0/device"
)

// pod returns a pod as the kubelet lists it, with containers without devices known to the kubelet.
func pod(name string, containers ...string) *podresourcesapi.PodResources {
	p := &podresourcesapi.PodResources{Namespace: "default", Name: name}
	for _, container := range containers {
		p.Containers = append(p.Containers, &podresourcesapi.ContainerResources{Name: container})
	}
	return p
}

// holding returns the pod with devices in its first container.
func holding(p *podresourcesapi.PodResources,
	devices ...*podresourcesapi.ContainerDevices) *podresourcesapi.PodResources {
	p.Containers[0].Devices = devices
	return p
}

// dev returns a device of a resource, on a NUMA node unless there is none.
func dev(resource, id string, numa ...int64) *podresourcesapi.ContainerDevices {
	d := &podresourcesapi.ContainerDevices{ResourceName: resource, DeviceIds: []string{id}}
	for _, node := range numa {
		d.Topology = &podresourcesapi.TopologyInfo{Nodes: []*podresourcesapi.NUMANode{{ID: node}}}
	}
	return d
}

func TestListsPodsWithTheirDevices(t *testing.T) {
	n := newNode(t)
	n.holds("u1", "train", map[string][]string{"main": {gpu1, gpu0, nic}, "side": {qat}})
	n.holds("u2", "gone", map[string][]string{"main": {gpu0}})
	n.kubelet.lists(pod("train", "side", "main", "none"), pod("plain", "main"))
	n.serve()

	want := []*podresourcesapi.PodResources{pod("train", "side", "main", "none"), pod("plain", "main")}
	want[0].Containers[0].Devices = []*podresourcesapi.ContainerDevices{dev("intel.com/qat", "0000:3d:01.0")}
	want[0].Containers[1].Devices = []*podresourcesapi.ContainerDevices{
		dev("nvidia.com/gpu", "GPU-0", 0), dev("nvidia.com/gpu", "GPU-1", 1), dev("vendor.example/nic", "eth0/1", 0),
		dev("vendor.example/nic", "eth0/1", 1),
	}
	if diff := cmp.Diff(want, n.list(), protocmp.Transform()); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
	for _, pod := range want {
		got, err := n.get(pod.Name)
		if diff := cmp.Diff(pod, got, protocmp.Transform()); err != nil || diff != "" {
			t.Errorf("Get %s: %v (-want +got):\n%s", pod.Name, err, diff)
		}
	}
}

func TestInitContainersAreNotListed(t *testing.T) {
	n := newNode(t)
	n.holds("u1", "p", map[string][]string{"main": {gpu0}})
	init := types.NewContainerInfo()
	init.AllocateFrom["r"] = gpu1
	n.grants[0].PodInfo.InitContainers["init"] = *init
	n.kubelet.lists(pod("p", "main"))
	n.serve()
	want := []*podresourcesapi.PodResources{holding(pod("p", "main"), dev("nvidia.com/gpu", "GPU-0", 0))}
	if diff := cmp.Diff(want, n.list(), protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestKeepsTheKubeletsEntries(t *testing.T) {
	n := newNode(t)
	n.holds("u1", "p", map[string][]string{"main": {gpu0}})
	reported := pod("p", "main")
	reported.CpuIds = []int64{4, 5}
	main := reported.Containers[0]
	main.CpuIds = []int64{4, 5}
	main.Memory = []*podresourcesapi.ContainerMemory{{MemoryType: "memory", Size: 1 << 30}}
	main.Devices = []*podresourcesapi.ContainerDevices{dev("zzz.example/other", "o", 1)}
	main.DynamicResources = []*podresourcesapi.DynamicResource{{ClaimName: "c", ClaimNamespace: "default"}}
	// A field of a kubelet newer than this kubecri.
	main.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 7))
	n.kubelet.lists(reported)
	n.serve()

	want := []*podresourcesapi.PodResources{reported}
	got := n.list()
	held := got[0].Containers[0].Devices
	if diff := cmp.Diff([]*podresourcesapi.ContainerDevices{dev("zzz.example/other", "o", 1),
		dev("nvidia.com/gpu", "GPU-0", 0)}, held, protocmp.Transform()); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	got[0].Containers[0].Devices = held[:1]
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("all else (-want +got):\n%s", diff)
	}
}

// The kubelet counts devices that kubecri allocates: the IDs in its entries have no meaning.
func TestOmitsEntriesThatTheKubeletOnlyCounts(t *testing.T) {
	n := newNode(t)
	n.devices.Kubelet = counts("nvidia.com/gpu")
	n.devices.Allocatable = types.ResourceList{gpu0: 1, gpu1: 1}
	n.holds("u1", "p", map[string][]string{"main": {gpu0}})
	n.kubelet.lists(holding(pod("p", "main", "side"), dev("nvidia.com/gpu", "GPU-1"), dev("zzz.example/other", "o")),
		holding(pod("refused", "main"), dev("nvidia.com/gpu", "GPU-0")))
	n.kubelet.allocatable = &podresourcesapi.AllocatableResourcesResponse{
		Devices: []*podresourcesapi.ContainerDevices{dev("nvidia.com/gpu", "GPU-0"), dev("zzz.example/other", "o")},
	}
	n.serve()
	want := []*podresourcesapi.PodResources{
		holding(pod("p", "main", "side"), dev("zzz.example/other", "o"), dev("nvidia.com/gpu", "GPU-0", 0)),
		pod("refused", "main"),
	}
	if diff := cmp.Diff(want, n.list(), protocmp.Transform()); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
	alpha, err := n.alphaList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range alpha {
		for _, d := range pod.GetContainers()[0].GetDevices() {
			if d.GetResourceName() == "nvidia.com/gpu" && (pod.GetName() != "p" || d.GetDeviceIds()[0] != "GPU-0") {
				t.Errorf("the old version has %v of pod %s", d, pod.GetName())
			}
		}
	}
	answer, err := n.client.GetAllocatableResources(t.Context(), &podresourcesapi.AllocatableResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	all := []*podresourcesapi.ContainerDevices{
		dev("zzz.example/other", "o"), dev("nvidia.com/gpu", "GPU-0", 0), dev("nvidia.com/gpu", "GPU-1", 1),
	}
	if diff := cmp.Diff(all, answer.GetDevices(), protocmp.Transform()); diff != "" {
		t.Errorf("allocatable (-want +got):\n%s", diff)
	}
}

func TestGrantOfTheActivePodWinsAmongEqualNames(t *testing.T) {
	old, young := map[string][]string{"main": {gpu0}}, map[string][]string{"main": {gpu1}}
	for name, test := range map[string]struct {
		grants map[string]map[string][]string // by UID
		pods   map[string]bool
		want   string
	}{
		"a pod that has ended has nothing": {
			map[string]map[string][]string{"u1": old}, map[string]bool{"u1": false}, "",
		},
		"an unknown pod has its devices": {map[string]map[string][]string{"u1": old}, map[string]bool{}, "GPU-0"},
		"the old one is gone, its container is not": {
			map[string]map[string][]string{"u1": old, "u2": young}, map[string]bool{"u1": false, "u2": true}, "GPU-1",
		},
		"the old one is forgotten, too": {
			map[string]map[string][]string{"u1": old, "u2": young}, map[string]bool{"u2": true}, "GPU-1",
		},
		"the new one has nothing yet": {
			map[string]map[string][]string{"u1": old}, map[string]bool{"u1": false, "u2": true}, "",
		},
		"in the other order": {
			map[string]map[string][]string{"u2": old, "u1": young}, map[string]bool{"u1": false, "u2": true}, "GPU-0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			for _, uid := range []string{"u1", "u2"} {
				if held, ok := test.grants[uid]; ok {
					n.grants = append(n.grants, grantOf(uid, "web-0", held))
				}
			}
			n.options.Pods = newFakePods(test.pods)
			n.kubelet.lists(pod("web-0", "main"))
			n.serve()
			got := ""
			for _, d := range n.list()[0].Containers[0].Devices {
				got += d.DeviceIds[0]
			}
			if got != test.want {
				t.Errorf("the pod has %q, want %q", got, test.want)
			}
		})
	}
}

func TestAllocatableAreHealthyAndKubeletDevices(t *testing.T) {
	n := newNode(t)
	n.kubelet.allocatable = &podresourcesapi.AllocatableResourcesResponse{
		CpuIds: []int64{0, 1}, Devices: []*podresourcesapi.ContainerDevices{dev("zzz.example/other", "o")},
	}
	n.devices.Allocatable = types.ResourceList{gpu0: 1, gpu1: 0, qat: 1, "nvidia.com/gpu": 1, "intel.com/qat": 1}
	n.holds("u1", "p", map[string][]string{"main": {gpu0}})
	n.serve()
	got, err := n.client.GetAllocatableResources(t.Context(), &podresourcesapi.AllocatableResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := &podresourcesapi.AllocatableResourcesResponse{CpuIds: []int64{0, 1},
		Devices: []*podresourcesapi.ContainerDevices{
			dev("zzz.example/other", "o"), dev("intel.com/qat", "0000:3d:01.0"), dev("nvidia.com/gpu", "GPU-0", 0),
		}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAlphaVersionListsTheSameDevices(t *testing.T) {
	n := newNode(t)
	n.holds("u1", "p", map[string][]string{"main": {gpu0, nic}})
	n.kubelet.lists(pod("p", "main"))
	n.serve()
	got, err := n.alphaList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []*alphaapi.PodResources{{Namespace: "default", Name: "p",
		Containers: []*alphaapi.ContainerResources{{Name: "main", Devices: []*alphaapi.ContainerDevices{
			{ResourceName: "nvidia.com/gpu", DeviceIds: []string{"GPU-0"}},
			{ResourceName: "vendor.example/nic", DeviceIds: []string{"eth0/1"}},
		}}}}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
