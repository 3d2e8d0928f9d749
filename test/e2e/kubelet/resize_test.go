// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

// limits returns a container's resources, from limits such as cpu=100m.
func limits(all ...string) corev1.ResourceRequirements {
	list := corev1.ResourceList{}
	for _, limit := range all {
		name, value, _ := strings.Cut(limit, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(value)
	}
	return corev1.ResourceRequirements{Limits: list}
}

func TestAPodIsResizedInPlace(t *testing.T) {
	onBothNodes(t, func(ctx context.Context, t *testing.T, node *cluster.Node) {
		pod := newPod(t, node, clustertest.Idle...)
		pod.Spec.Containers[0].Resources = limits("cpu=100m", "memory=64Mi")
		pod = clustertest.RunPod(ctx, t, shared.Client, pod)
		expectLimits(ctx, t, pod, "10000", "67108864")

		patched := kubectl(ctx, t, pod, nil, "patch", "pod", pod.Name, "--subresource=resize", "--patch",
			`{"spec": {"containers": [{"name": "main", "resources": {`+
				`"requests": {"cpu": "200m", "memory": "96Mi"}, "limits": {"cpu": "200m", "memory": "96Mi"}}}]}}`)
		if patched.Code != 0 {
			t.Fatal(patched.Stderr)
		}

		resized := clustertest.AwaitPod(ctx, t, shared.Client, pod, "to have its new limits",
			func(pod *corev1.Pod) bool {
				actual := container(pod).Resources
				return actual != nil && actual.Limits.Cpu().String() == "200m" &&
					actual.Limits.Memory().String() == "96Mi"
			})
		expectLimits(ctx, t, resized, "20000", "100663296")
		expectSameContainer(t, pod, resized)
	})
}

// expectLimits reads a container's limits from inside, with cgroups of version 1 or 2: microseconds
// of CPU in 100,000, and bytes.
func expectLimits(ctx context.Context, t *testing.T, pod *corev1.Pod, cpu, memory string) {
	t.Helper()
	const read = `cd /sys/fs/cgroup; cat cpu/cpu.cfs_quota_us 2>/dev/null || cut -d' ' -f1 cpu.max; ` +
		`cat memory/memory.limit_in_bytes 2>/dev/null || cat memory.max`
	if got := strings.Fields(inside(ctx, t, pod, "sh", "-c", read)); len(got) != 2 || got[0] != cpu ||
		got[1] != memory {
		t.Errorf("the container's limits are %q, want %s and %s", got, cpu, memory)
	}
}

// expectSameContainer fails the test if a pod's container was replaced.
func expectSameContainer(t *testing.T, before, now *corev1.Pod) {
	t.Helper()
	was, is := container(before), container(now)
	if is.ContainerID != was.ContainerID || is.RestartCount != was.RestartCount {
		t.Errorf("the container of pod %s was %s, restarted %d times; now it is %s, restarted %d times",
			now.Name, was.ContainerID, was.RestartCount, is.ContainerID, is.RestartCount)
	}
}
