// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// The resources of the node.
const (
	whole = corev1.ResourceName("nvidia.com/gpu")
	small = corev1.ResourceName("nvidia.com/mig-1g.10gb")
	large = corev1.ResourceName("nvidia.com/mig-3g.40gb")
)

func TestPodsGetTheInstancesThatTheSchedulerChoseAndAnXIDConcernsOne(t *testing.T) {
	ctx := begin(t)
	awaitOffer(ctx, t, map[corev1.ResourceName]int64{whole: 1, small: 3, large: 1})
	namespace := clustertest.Namespace(t, shared.Client)
	pod := func(name string, limits map[corev1.ResourceName]int64) *corev1.Pod {
		return clustertest.IdlePod(namespace, name, limits)
	}
	var pods []*corev1.Pod
	taken := map[string]string{}
	for i, limits := range []map[corev1.ResourceName]int64{{small: 1}, {small: 2}, {large: 1}, {whole: 1}} {
		p := clustertest.RunPod(ctx, t, shared.Client, pod(fmt.Sprintf("holder-%d", i), limits))
		for _, device := range expectChosen(ctx, t, p) {
			if other := taken[device]; other != "" {
				t.Errorf("%s and %s have both %s", other, p.Name, device)
			}
			taken[device] = p.Name
		}
		pods = append(pods, p)
	}
	for name, resource := range map[string]corev1.ResourceName{"late-small": small, "late-whole": whole} {
		p := clustertest.CreatePod(ctx, t, shared.Client, pod(name, map[corev1.ResourceName]int64{resource: 1}))
		clustertest.AwaitPod(ctx, t, shared.Client, p, "to find no node", kube.Unschedulable)
		clustertest.DeletePod(ctx, t, shared.Client, p)
	}

	gi := slices.IndexFunc([]int{1, 2, 3}, func(gi int) bool {
		return taken[nvmltest.InstanceUUID(1, gi, 0)] == pods[0].Name
	}) + 1
	library.BreakInstance(t, 1, 94, gi, 0)
	clustertest.AwaitPod(ctx, t, shared.Client, pods[0], "to have the condition that its instance is unhealthy",
		func(p *corev1.Pod) bool { return condition(p) == corev1.ConditionFalse })
	broken := nvmltest.InstanceUUID(1, gi, 0)
	if _, err := shared.Client.AwaitNode(ctx, shared.Nodes[0].Name, "to say that "+broken+" alone is unhealthy",
		func(node *corev1.Node) bool {
			said := node.Annotations[deviceinfo.UnhealthyAnnotation]
			return strings.Count(said, "MIG-") == 1 && strings.Contains(said, broken)
		}); err != nil {
		t.Fatal(err)
	}
	for _, neighbour := range pods[1:] {
		now := clustertest.AwaitPod(ctx, t, shared.Client, neighbour, "to be ready still", kube.Ready)
		was, is := neighbour.Status.ContainerStatuses[0], now.Status.ContainerStatuses[0]
		if condition(now) == corev1.ConditionFalse || was.ContainerID != is.ContainerID || is.RestartCount != 0 {
			t.Errorf("pod %s: %s, restarted %d times, condition %q", now.Name, is.ContainerID, is.RestartCount,
				condition(now))
		}
	}
}

// TestIdleInstancesMakeRoomForAPodThatWaits has a layout with two large instances, of which one is
// there and in use.
func TestIdleInstancesMakeRoomForAPodThatWaits(t *testing.T) {
	ctx := begin(t)
	awaitOffer(ctx, t, map[corev1.ResourceName]int64{large: 1})
	namespace := clustertest.Namespace(t, shared.Client)
	one := map[corev1.ResourceName]int64{large: 1}
	holder := clustertest.RunPod(ctx, t, shared.Client, clustertest.IdlePod(namespace, "holder", one))
	waiting := clustertest.CreatePod(ctx, t, shared.Client, clustertest.IdlePod(namespace, "waiting", one))
	clustertest.AwaitPod(ctx, t, shared.Client, waiting, "to find no node", kube.Unschedulable)

	layout := "flags: {migStrategy: mixed}\n" +
		"kubedevice: {migLayouts: [{instances: [3g.40gb, 3g.40gb], replaceIdle: true}]}"
	if err := os.WriteFile(configuration, []byte(layout), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := shared.Nodes[0].Kubecri.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	waiting = clustertest.AwaitPod(ctx, t, shared.Client, waiting, "to run", kube.Ready)
	if first, second := expectChosen(ctx, t, holder), expectChosen(ctx, t, waiting); cmp.Equal(first, second) {
		t.Errorf("both pods have %v", first)
	}
	if diff := cmp.Diff(map[int][]string{1: {"3g.40gb@0", "3g.40gb@4"}}, library.Partitions(t)); diff != "" {
		t.Errorf("instances (-want +got):\n%s", diff)
	}
	now := clustertest.AwaitPod(ctx, t, shared.Client, holder, "to be ready still", kube.Ready)
	was, is := holder.Status.ContainerStatuses[0], now.Status.ContainerStatuses[0]
	if was.ContainerID != is.ContainerID || is.RestartCount != 0 || condition(now) == corev1.ConditionFalse {
		t.Errorf("the pod that had its instance before: %s, restarted %d times, condition %q", is.ContainerID,
			is.RestartCount, condition(now))
	}
	awaitOffer(ctx, t, map[corev1.ResourceName]int64{whole: 1, small: 0, large: 2})
}

// condition returns the status of a pod's condition about its devices.
func condition(pod *corev1.Pod) corev1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == deviceinfo.DevicesHealthyCondition {
			return c.Status
		}
	}
	return ""
}

// expectChosen returns the devices that the scheduler chose for a pod. It fails the test unless
// they are of the resources and as many as requested, and the ones that NVIDIA's container runtime
// gets.
func expectChosen(ctx context.Context, t *testing.T, pod *corev1.Pod) []string {
	t.Helper()
	allocation, err := deviceinfo.PodAllocation(pod)
	if err != nil {
		t.Fatal(err)
	}
	var devices []string
	got, want := map[corev1.ResourceName]int64{}, map[corev1.ResourceName]int64{}
	for _, name := range allocation.RunningContainers["main"].AllocateFrom {
		path, err := resource.ParsePath(name)
		if err != nil {
			t.Fatal(err)
		}
		devices = append(devices, path.DeviceID())
		if path.Resource() == "cards" {
			got[whole]++
		} else {
			got[corev1.ResourceName("nvidia.com/"+path.Resource())]++
		}
	}
	for name, quantity := range pod.Spec.Containers[0].Resources.Limits {
		want[name] = quantity.Value()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pod %s (-requested +chosen):\n%s", pod.Name, diff)
	}
	slices.Sort(devices)
	seen, err := shared.Client.Exec(ctx, pod, "main", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES")
	if err != nil {
		t.Fatal(err)
	}
	if seen = strings.TrimSpace(seen); seen != strings.Join(devices, ",") {
		t.Errorf("pod %s: the scheduler chose %q, the container sees %q", pod.Name, devices, seen)
	}
	return devices
}

// awaitOffer waits until the node offers so many of each resource.
func awaitOffer(ctx context.Context, t *testing.T, want map[corev1.ResourceName]int64) {
	t.Helper()
	_, err := shared.Client.AwaitNode(ctx, shared.Nodes[0].Name, fmt.Sprintf("to offer %v", want),
		func(node *corev1.Node) bool {
			for name, count := range want {
				if quantity := node.Status.Allocatable[name]; quantity.Value() != count {
					return false
				}
			}
			return true
		})
	if err != nil {
		t.Fatal(err)
	}
}
