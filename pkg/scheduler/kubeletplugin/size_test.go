// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// manyDevices returns a node with devices of one plugin on two NUMA nodes.
func manyDevices(t *testing.T, count int) *types.NodeInfo {
	t.Helper()
	node := types.NewNodeInfoWithName("n")
	for i := range count {
		name, err := kubeletdevice.Name(kubeletdevice.Device{Resource: "a.b/c", ID: fmt.Sprint(i), NUMA: []int{i % 2}})
		if err != nil {
			t.Fatal(err)
		}
		node.Allocatable[name] = 1
	}
	return node
}

// counting returns a pod whose containers, of one kind, count devices.
func counting(kind grouptree.Kind, containers int, devices int64) (*types.PodInfo, []grouptree.Container) {
	pod, spec := types.NewPodInfo(), []grouptree.Container(nil)
	for i := range containers {
		name := fmt.Sprintf("c%03d", i)
		spec = append(spec, grouptree.Container{Name: name, Kind: kind})
		list := pod.RunningContainers
		if kind == grouptree.Init {
			list = pod.InitContainers
		}
		info := types.ContainerInfo{KubeRequests: types.ResourceList{"a.b/c": devices}}
		list[name] = *types.FillContainerInfo(&info)
	}
	return pod, spec
}

// The scheduler refuses a container whose encoded allocation exceeds the limit of the runtime, and
// a pod with too many devices, before it chooses any device. It inspects only which containers run
// at the same time.
func TestRefusesTooManyDevicesBeforeTheSearch(t *testing.T) {
	node := manyDevices(t, 1500)
	for name, test := range map[string]struct {
		kind       grouptree.Kind
		containers int
		devices    int64
		want       string
	}{
		"one container": {
			grouptree.Regular, 1, 1203, `container "c000": its 1203 devices take more than 7168 bytes in the container`,
		},
		"many containers":      {grouptree.Regular, 30, 25, "more than 512 devices: request fewer"},
		"many init containers": {grouptree.Init, 60, 9, "more than 512 devices: request fewer"},
		"more containers than may request devices": {
			grouptree.Init, 65, 1,
			"65 of its containers request devices, more than 64: request them in fewer containers",
		},
		"as many as there may be": {
			grouptree.Regular, 5, 100, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod, spec := counting(test.kind, test.containers, test.devices)
			c := newCall(readRequest(pod, spec), nil, 0)
			fits, reasons, _ := c.PodFitsDevice(node, pod, true)
			inspections, cut := c.Spent()
			switch {
			case test.want == "" && !fits:
				t.Errorf("it does not fit: %v", reasons)
			case test.want == "":
			case fits || !strings.Contains(reasons[0].GetReason(), test.want):
				t.Errorf("it fits: %v, %v; want %q", fits, reasons, test.want)
			case !reasons[0].(reason).unresolvable:
				t.Error("evicting pods seems to help")
			case inspections > 2*test.containers*(1+test.containers) || cut:
				t.Errorf("%d inspections for %d containers, cut: %v", inspections, test.containers, cut)
			}
		})
	}
}

// The bound is a lower bound: no allocation takes less.
func TestLeastDeviceBytesIsALowerBound(t *testing.T) {
	node := manyDevices(t, 300)
	for devices := int64(10); devices <= 200; devices += 10 {
		pod, spec := counting(grouptree.Regular, 1, devices)
		if fits, reasons, _ := newCall(readRequest(pod, spec), nil, 0).PodFitsDevice(node, pod, true); !fits {
			t.Fatal(reasons)
		}
		least := 0
		for _, from := range pod.RunningContainers["c000"].AllocateFrom {
			least += deviceinfo.LeastDeviceBytes(from)
		}
		text, err := deviceinfo.EncodeContainer(pod.RunningContainers["c000"], false)
		if err != nil {
			t.Fatal(err)
		}
		if least > len(text) || least < len(text)*3/4 {
			t.Errorf("%d devices take %d bytes, and the bound is %d", devices, len(text), least)
		}
	}
}

// A search stops when no inspections are left, reports that, and exceeds the limit only a little.
func TestSearchStopsAtItsInspectionLimit(t *testing.T) {
	node := manyDevices(t, 1500)
	pod, spec := types.NewPodInfo(), []grouptree.Container(nil)
	for c := range 25 {
		name := fmt.Sprintf("c%02d", c)
		info := types.ContainerInfo{KubeRequests: types.ResourceList{"a.b/c": 20}, Requests: types.ResourceList{}}
		for g := range 20 {
			info.Requests[types.ResourceName(fmt.Sprintf("numa/%d/a.b:c", g))] = 1
		}
		pod.RunningContainers[name] = *types.FillContainerInfo(&info)
		spec = append(spec, grouptree.Container{Name: name, Kind: grouptree.Sidecar})
	}
	for _, limit := range []int{1_000, 10_000, 50_000} {
		c := newCall(readRequest(pod, spec), nil, limit)
		fits, reasons, _ := c.PodFitsDevice(node, pod.Clone(), true)
		inspections, cut := c.Spent()
		if fits || !cut || !strings.Contains(reasons[0].GetReason(), "given up") || reasons[0].(reason).unresolvable {
			t.Errorf("limit %d: it fits: %v, cut: %v, %v", limit, fits, cut, reasons)
		}
		if inspections < limit || inspections > limit+40_000 {
			t.Errorf("%d inspections, the limit is %d", inspections, limit)
		}
	}
	for name := range pod.RunningContainers {
		if name >= "c08" {
			delete(pod.RunningContainers, name)
		}
	}
	if fits, reasons, _ := newCall(readRequest(pod, spec), nil, 0).PodFitsDevice(node, pod, true); !fits {
		t.Errorf("with fewer containers it does not fit: %v", reasons)
	}
}
