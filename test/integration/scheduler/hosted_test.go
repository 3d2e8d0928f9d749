// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/test/kube"
)

const nic types.ResourceName = "vendor.example/nic"

// host creates a node that hosts a GPU and a NIC, by these IDs, on each of its NUMA nodes.
func (c *cluster) host(name string, gpus, nics []string) {
	c.Helper()
	info := types.NewNodeInfoWithName(name)
	for plain, ids := range map[types.ResourceName][]string{gpu.Resource: gpus, nic: nics} {
		for numa, id := range ids {
			device, err := kubeletdevice.Name(kubeletdevice.Device{Resource: plain, ID: id, NUMA: []int{numa}})
			if err != nil {
				c.Fatal(err)
			}
			info.Capacity[device], info.Allocatable[device] = 1, 1
		}
		info.Capacity[plain], info.Allocatable[plain] = int64(len(ids)), int64(len(ids))
	}
	c.publish(info)
}

// hostedPod returns a pod that requests so many GPUs and NICs by its limits, with these requests in
// its annotation.
func hostedPod(name string, gpus, nics int64, requests ...string) *corev1.Pod {
	pod := newPod(name, 0)
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{}
	for resourceName, count := range map[types.ResourceName]int64{gpu.Resource: gpus, nic: nics} {
		pod.Spec.Containers[0].Resources.Limits[corev1.ResourceName(resourceName)] = *resource.NewQuantity(count,
			resource.DecimalSI)
	}
	if len(requests) > 0 {
		kube.SetRequests(pod, strings.Join(requests, ","))
	}
	return pod
}

// hostedDevices returns the IDs of the hosted devices that a bound pod was allocated, sorted.
func hostedDevices(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	info, err := deviceinfo.PodAllocation(pod)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for from := range maps.Values(info.RunningContainers["main"].AllocateFrom) {
		if device, ok := kubeletdevice.Parse(from); ok {
			ids = append(ids, device.ID)
		}
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

func TestPodsThatOnlyCountGetHostedDevicesByName(t *testing.T) {
	c := newCluster(t)
	c.host("n1", []string{"g0", "g1"}, []string{"n0", "n1"})
	startScheduler(t)
	for i, want := range []string{"g0 n0", "g1 n1"} {
		if got := hostedDevices(t, c.schedule(hostedPod(fmt.Sprint("p", i), 1, 1))); got != want {
			t.Errorf("pod %d got %s, want %s", i, got, want)
		}
	}
	c.await(c.create(hostedPod("late", 1, 1)), "to be found unschedulable", kube.Unschedulable)
}

func TestHostedDevicesOnOneNUMANodeOrAReason(t *testing.T) {
	c := newCluster(t)
	c.host("n1", []string{"g0", "g1"}, []string{"n0", "n1"})
	startScheduler(t)
	holder := c.schedule(hostedPod("holder", 1, 1, `"numa/A/nvidia.com:gpu/=g0/device":1`,
		`"numa/B/vendor.example:nic/=n1/device":1`))
	if got, want := hostedDevices(t, holder), "g0 n1"; got != want {
		t.Fatalf("devices %s, want %s", got, want)
	}
	together := []string{`"numa/A/nvidia.com:gpu":1`, `"numa/A/vendor.example:nic":1`}
	pod := c.await(c.create(hostedPod("together", 1, 1, together...)), "to be found unschedulable", kube.Unschedulable)
	message := whyUnscheduled(pod)
	if want := "1 have no NUMA node with 1 nvidia.com/gpu and 1 vendor.example/nic free"; !strings.Contains(message,
		want) {
		t.Errorf("the pod's event says %q, want: %s", message, want)
	}
	c.delete(holder)
	got := hostedDevices(t, c.await(pod, "to be bound", kube.Scheduled))
	if got != "g0 n0" && got != "g1 n1" {
		t.Errorf("devices %s are not on one NUMA node", got)
	}
}

// On one node the resource is the plugin's, on the other it is hosted.
func TestOneResourceIsHostedOnOneNodeAndAPluginsOnAnother(t *testing.T) {
	c := newCluster(t)
	c.node("plugin", 2)
	c.host("hosted", []string{"g0", "g1"}, nil)
	startScheduler(t)
	var got []string
	for i := range 4 {
		pod := c.schedule(newPod(fmt.Sprint("p", i), 1))
		got = append(got, pod.Spec.NodeName+": "+devices(pod)+hostedDevices(t, pod))
	}
	slices.Sort(got)
	want := []string{"hosted: g0", "hosted: g1", "plugin: plugin-gpu-0", "plugin: plugin-gpu-1"}
	if !slices.Equal(got, want) {
		t.Errorf("devices %q, want %q", got, want)
	}
}

// One pod of priority 0 holds the GPU of NUMA node 0, another one the NIC of NUMA node 1.
func TestPreemptionFreesTheHostedDevicesThatAPodRequests(t *testing.T) {
	startScheduler(t)
	for name, test := range map[string]struct {
		requests  []string
		evicted   string
		allocated []string // one of them; none if the pod must wait
	}{
		"those that make a GPU and a NIC of one NUMA node": {
			[]string{`"numa/A/nvidia.com:gpu":1`, `"numa/A/vendor.example:nic":1`}, "one", []string{"g0 n0", "g1 n1"},
		},
		"those of one NUMA node": {
			[]string{`"numa/=1/nvidia.com:gpu":1`, `"numa/=1/vendor.example:nic":1`}, "nic", []string{"g1 n1"},
		},
		"the device that is named": {
			[]string{`"numa/A/nvidia.com:gpu/=g0/device":1`}, "gpu", []string{"g0 n0"},
		},
		"nothing for one that is not there": {[]string{`"numa/A/nvidia.com:gpu/=g7/device":1`}, "", nil},
		"nothing for two that never were one": {
			[]string{`"numa/A/nvidia.com:gpu/=g0/device":1`, `"numa/A/vendor.example:nic/=n1/device":1`}, "", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.host("n1", []string{"g0", "g1"}, []string{"n0", "n1"})
			holders := map[string]*corev1.Pod{
				"gpu": c.schedule(hostedPod("holds-gpu", 1, 0, `"numa/A/nvidia.com:gpu/=g0/device":1`)),
				"nic": c.schedule(hostedPod("holds-nic", 0, 1, `"numa/A/vendor.example:nic/=n1/device":1`)),
			}
			wanted := hostedPod("wanted", 1, 1, test.requests...)
			wanted.Spec.PriorityClassName = c.priorityClass("high", 1000)
			pod := c.create(wanted)
			if test.allocated == nil {
				c.awaitNoVictims(pod)
			} else if allocated := hostedDevices(t,
				c.await(pod, "to be bound", kube.Scheduled)); !slices.Contains(test.allocated, allocated) {
				t.Errorf("allocated %s, want one of %q", allocated, test.allocated)
			}
			evicted := ""
			for name, holder := range holders {
				if !slices.ContainsFunc(c.pods(), func(pod corev1.Pod) bool { return pod.Name == holder.Name }) {
					if evicted != "" {
						t.Errorf("both are evicted")
					}
					evicted = name
				}
			}
			if evicted != test.evicted && !(test.evicted == "one" && evicted != "") {
				t.Errorf("evicted is the one with the %s, want %s", evicted, test.evicted)
			}
		})
	}
}
