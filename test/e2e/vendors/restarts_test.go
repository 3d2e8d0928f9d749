// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package vendors

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/vendors"
)

// mixed are limits of which two pods fit on a node, and no third.
var mixed = limits{"gpu.intel.com/i915": 2, "npu.intel.com/accel": 1, "nvidia.com/gpu": 2}

func TestContainersNeverNoticeThatProgramsAreKilledAndNoDeviceIsGivenTwice(t *testing.T) {
	ctx := begin(t)
	n := nodes[0]
	namespace := clustertest.Namespace(t, shared.Client)
	holder := clustertest.RunPod(ctx, t, shared.Client,
		clustertest.On(n.Name, clustertest.IdlePod(namespace, "holder", mixed)))
	held := expectDevices(ctx, t, holder)
	for i, killed := range []struct {
		name     string
		programs []*cluster.Component
	}{
		{"the plugins", []*cluster.Component{n.plugins[intelGPU], n.plugins[intelNPU], n.plugins[nvidia]}},
		{"kubecri", []*cluster.Component{n.Kubecri}},
		{"the kubelet", []*cluster.Component{n.Kubelet}},
		{
			"all of them", []*cluster.Component{n.Kubelet, n.plugins[intelGPU], n.plugins[nvidia], n.Kubecri,
				n.plugins[intelNPU]},
		},
	} {
		t.Run(killed.name+" killed", func(t *testing.T) {
			restart(ctx, t, killed.programs...)
			other := clustertest.RunPod(ctx, t, shared.Client,
				clustertest.On(n.Name, clustertest.IdlePod(namespace, fmt.Sprintf("other-%d", i), mixed)))
			ids := expectDevices(ctx, t, other)
			for resource, all := range ids {
				for _, id := range all {
					for _, mine := range held[resource] {
						if id == mine {
							t.Errorf("%s of %s was allocated to pods %s and %s", id, resource, holder.Name, other.Name)
						}
					}
				}
			}
			now := clustertest.AwaitPod(ctx, t, shared.Client, holder, "to be ready still", kube.Ready)
			if diff := cmp.Diff(holder.Status.ContainerStatuses, now.Status.ContainerStatuses); diff != "" {
				t.Errorf("the container that was there noticed something (-before +after):\n%s", diff)
			}
			clustertest.DeletePod(ctx, t, shared.Client, other)
		})
	}
	again := clustertest.RestartContainer(ctx, t, shared.Client, holder)
	if diff := cmp.Diff(held, expectDevices(ctx, t, again)); diff != "" {
		t.Errorf("devices of pod %s (-before +in a new container):\n%s", holder.Name, diff)
	}
}

func TestPodsGoOnWhenTheirKubeletIsKilledWhileTheirPluginsAreAway(t *testing.T) {
	ctx := begin(t)
	n := nodes[0]
	pod := clustertest.RunPod(ctx, t, shared.Client,
		clustertest.On(n.Name, clustertest.IdlePod(clustertest.Namespace(t, shared.Client), "holder", mixed)))
	expectDevices(ctx, t, pod)

	n.setLate(true)
	t.Cleanup(func() { n.setLate(false) })
	for name := range n.plugins {
		if err := n.plugins[name].Kill9(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for resource := range n.offers() {
		n.awaitOffer(ctx, t, resource, mixed[resource]) // which the kubelet is about to request
	}
	restart(ctx, t, n.Kubelet)

	// The kubelet has admitted the pods when it runs another.
	next := clustertest.IdlePod(pod.Namespace, "next", nil)
	next.Spec.NodeName = n.Name
	clustertest.RunPod(ctx, t, shared.Client, next)
	now := clustertest.AwaitPod(ctx, t, shared.Client, pod, "to be ready still", kube.Ready)
	if diff := cmp.Diff(pod.Status.ContainerStatuses, now.Status.ContainerStatuses); diff != "" {
		t.Errorf("the container noticed something (-before +after):\n%s", diff)
	}
	expectDevices(ctx, t, now)
}

func TestPodsRunAgainWhenTheirNodeIsRebootedAndItsPluginsComeUpLate(t *testing.T) {
	ctx := beginWith(t, 2*timeout) // 50 seconds and some tries of the kubelet's are spent on waiting
	n := nodes[0]
	namespace := clustertest.Namespace(t, shared.Client)
	var pods []*corev1.Pod
	var held []choice
	for i, requests := range []limits{mixed, {"gpu.intel.com/i915": 1, "qat.intel.com/cy": 2},
		{"example.com/resource": 1}} {
		pod := clustertest.RunPod(ctx, t, shared.Client,
			clustertest.On(n.Name, clustertest.IdlePod(namespace, fmt.Sprintf("pod-%d", i), requests)))
		pods, held = append(pods, pod), append(held, expectDevices(ctx, t, pod))
	}
	before := len(allocated(t, n.plugins[sample]))

	n.setLate(true)
	t.Cleanup(func() { n.setLate(false) })
	if err := n.reboot(ctx); err != nil {
		t.Fatal(err)
	}
	// Containers wait for the plugins for 50 seconds, and are refused then.
	clustertest.AwaitEvent(ctx, t, shared.Client, pods[0], "DevicesRefused")
	n.setLate(false)

	for i, pod := range pods {
		again := clustertest.AwaitPod(ctx, t, shared.Client, pod, "to run in a new container",
			func(now *corev1.Pod) bool {
				return kube.Ready(now) &&
					now.Status.ContainerStatuses[0].ContainerID != pod.Status.ContainerStatuses[0].ContainerID
			})
		if diff := cmp.Diff(held[i], expectDevices(ctx, t, again)); diff != "" {
			t.Errorf("devices of pod %s (-before +after the reboot):\n%s", pod.Name, diff)
		}
	}
	again := clustertest.RestartContainer(ctx, t, shared.Client, clustertest.AwaitPod(ctx, t, shared.Client, pods[2],
		"to be there", kube.Ready))
	expectDevices(ctx, t, again)
	if diff := cmp.Diff([][]string{held[2]["example.com/resource"]},
		allocated(t, n.plugins[sample])[before:]); diff != "" {
		t.Errorf("calls of Allocate since the reboot, after which the container was made twice (-want +got):\n%s", diff)
	}
}

func TestAContainerIsMadeAgainAlthoughTheFileIsGoneThatItsPluginMade(t *testing.T) {
	ctx := begin(t)
	n := nodes[0]
	pod := clustertest.RunPod(ctx, t, shared.Client, clustertest.On(n.Name,
		clustertest.IdlePod(clustertest.Namespace(t, shared.Client), "pod", limits{"gpu.intel.com/i915": 1})))
	held := expectDevices(ctx, t, pod)

	files, err := n.Run(ctx, "/bin/ls", vendors.SpecDir)
	if err != nil || files == "" {
		t.Fatalf("Intel's plugin made %q in %s, %v", files, vendors.SpecDir, err)
	}
	if _, err := n.Run(ctx, "/bin/rm", "-r", vendors.SpecDir); err != nil {
		t.Fatal(err)
	}

	again := clustertest.RestartContainer(ctx, t, shared.Client, pod)
	if diff := cmp.Diff(held, expectDevices(ctx, t, again)); diff != "" {
		t.Errorf("devices of pod %s (-before +in a new container):\n%s", pod.Name, diff)
	}
}

// restart kills programs all at once, and starts them again.
func restart(ctx context.Context, t *testing.T, programs ...*cluster.Component) {
	t.Helper()
	for _, program := range programs {
		if err := program.Kill9(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range programs {
		if err := program.Start(); err != nil && program.PID() == 0 { // it may have been started already
			t.Fatal(err)
		}
	}
}
