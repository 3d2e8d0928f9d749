// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package vendors

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/vendors"
)

func TestAGPUThatFallsOffTheBusIsAllocatedToNoPodUntilItIsRepaired(t *testing.T) {
	ctx := begin(t)
	n := nodes[0]
	const gpu = corev1.ResourceName("nvidia.com/gpu")
	namespace := clustertest.Namespace(t, shared.Client)
	holder := clustertest.RunPod(ctx, t, shared.Client,
		clustertest.On(n.Name, clustertest.IdlePod(namespace, "holder", limits{gpu: 1})))
	broken := expectDevices(ctx, t, holder)[gpu][0]
	number := slices.IndexFunc(n.Plugin(nvidia).Devices, func(d vendors.Device) bool { return d.ID == broken })

	n.nvml.Break(t, number, 79)

	awaitLog(ctx, t, n.plugins[nvidia], "device marked unhealthy: "+broken)
	if _, err := shared.Client.AwaitNode(ctx, n.Name, "to say that "+broken+" is unhealthy",
		func(now *corev1.Node) bool {
			return strings.Contains(now.Annotations[deviceinfo.UnhealthyAnnotation], broken)
		}); err != nil {
		t.Fatal(err)
	}
	clustertest.DeletePod(ctx, t, shared.Client, holder) // of itself, it would keep the device from others
	var others []*corev1.Pod
	for i := range 3 {
		pod := clustertest.RunPod(ctx, t, shared.Client,
			clustertest.On(n.Name, clustertest.IdlePod(namespace, fmt.Sprintf("other-%d", i), limits{gpu: 1})))
		if ids := expectDevices(ctx, t, pod); slices.Contains(ids[gpu], broken) {
			t.Errorf("pod %s was allocated the broken %s", pod.Name, broken)
		}
		others = append(others, pod)
	}
	late := clustertest.CreatePod(ctx, t, shared.Client,
		clustertest.On(n.Name, clustertest.IdlePod(namespace, "late", limits{gpu: 1})))
	clustertest.AwaitPod(ctx, t, shared.Client, late, "to find no node", kube.Unschedulable)

	n.nvml.Repair(t)
	restart(ctx, t, n.plugins[nvidia]) // which never takes back what it has reported
	late = clustertest.AwaitPod(ctx, t, shared.Client, late, "to be ready when the GPU is repaired", kube.Ready)
	if ids := expectDevices(ctx, t, late); !slices.Equal(ids[gpu], []string{broken}) {
		t.Errorf("pod late was allocated %q, and only %s was free", ids, broken)
	}
	for _, pod := range others {
		clustertest.AwaitPod(ctx, t, shared.Client, pod, "to be ready still", kube.Ready)
	}
}

func TestAPodKeepsAnUnhealthyDeviceAndGetsOneEvent(t *testing.T) {
	ctx := begin(t)
	n := nodes[0]
	const qat = corev1.ResourceName("qat.intel.com/cy")
	namespace := clustertest.Namespace(t, shared.Client)
	pod := clustertest.RunPod(ctx, t, shared.Client,
		clustertest.On(n.Name, clustertest.IdlePod(namespace, "holder", limits{qat: 1})))
	held := expectDevices(ctx, t, pod)[qat][0]
	index := slices.IndexFunc(n.Plugin("qat_plugin").Devices, func(d vendors.Device) bool { return d.ID == held })
	numa := n.Plugin("qat_plugin").Devices[index].NUMA[0]
	setHealth := func(healthy bool) {
		if err := n.SetQATHealth(numa, healthy); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { setHealth(true) })

	setHealth(false)

	n.awaitOffer(ctx, t, qat, 2)
	message := clustertest.AwaitEvent(ctx, t, shared.Client, pod, "DeviceUnhealthy")
	if !strings.Contains(message, held) ||
		!strings.Contains(message, "main") {
		t.Errorf("the pod's event says %q, and not that %s of container main is unhealthy", message, held)
	}
	now := clustertest.AwaitPod(ctx, t, shared.Client, pod, "to be ready still", kube.Ready)
	if now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("its container was restarted: %+v", now.Status.ContainerStatuses[0])
	}
	setHealth(true)
	n.awaitOffer(ctx, t, qat, 4)
	events, err := shared.Client.PodEvents(ctx, pod)
	if err != nil {
		t.Fatal(err)
	}
	unhealthy := int32(0)
	for _, event := range events {
		if event.Reason == "DeviceUnhealthy" {
			unhealthy += max(1, event.Count)
		}
	}
	if unhealthy != 1 {
		t.Errorf("the pod has %d events DeviceUnhealthy, want one: %v", unhealthy, events)
	}
}
