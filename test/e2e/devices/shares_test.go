// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/observe"
)

// The memory and cores of shares, in limits and in the node's status.
const (
	gpuMemory corev1.ResourceName = "nvidia.com/gpumem"
	gpuCores  corev1.ResourceName = "nvidia.com/gpucores"
)

// share returns a pod on node-1 that requests memory of GPUs, in MiB, and cores, as HAMi's users
// do: of as many GPUs, or of one for 0.
func share(namespace, name string, gpus, memory, cores int64) *corev1.Pod {
	limits := map[corev1.ResourceName]int64{gpuMemory: memory}
	if gpus > 0 {
		limits[observe.Resource] = gpus
	}
	if cores > 0 {
		limits[gpuCores] = cores
	}
	return clustertest.On("node-1", clustertest.IdlePod(namespace, name, limits))
}

// A node's status lists the memory and cores of its GPUs. No plugin serves them, so kubelets only
// count them: every pod that the scheduler binds starts, until all is used up.
func TestKubeletsAdmitShares(t *testing.T) {
	ctx := begin(t)
	namespace := clustertest.Namespace(t, shared.Client)
	node, err := shared.Client.CoreV1().Nodes().Get(ctx, "node-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[corev1.ResourceName]int64{gpuMemory: perNode * 80 << 10, gpuCores: perNode * 100} {
		for _, list := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
			if got := list[name]; got.Value() != want {
				t.Errorf("the node has %v of %s, want %d", &got, name, want)
			}
		}
	}
	// All memory of all GPUs but 8 GiB of one: 7 with two shares each, of which one is of two GPUs.
	var pods []*corev1.Pod
	create := func(pod *corev1.Pod) {
		pods = append(pods, clustertest.CreatePod(ctx, t, shared.Client, pod))
	}
	create(share(namespace, "two", 2, 40<<10, 50))
	for i := range 13 {
		create(share(namespace, fmt.Sprint("share-", i), 0, 40<<10, 50))
	}
	create(share(namespace, "last", 0, 32<<10, 20))
	for _, pod := range pods {
		running := clustertest.AwaitPod(ctx, t, shared.Client, pod, "to be ready", kube.Ready)
		want := 1
		if running.Name == "two" {
			want = 2
		}
		if seen := inspectRaw(ctx, t, running, "main"); len(seen.Visible) != want {
			t.Errorf("%s has the devices %q, want %d", running.Name, seen.Visible, want)
		}
	}
	more := clustertest.CreatePod(ctx, t, shared.Client, share(namespace, "more", 0, 32<<10, 0))
	clustertest.AwaitPod(ctx, t, shared.Client, more, "to wait for memory", waits("have no GPU with 32 GiB"))
}

// waits returns the condition that a pod waits for a reason that contains a text.
func waits(text string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && strings.Contains(condition.Message, text) {
				return true
			}
		}
		return false
	}
}

// The scheduler holds a namespace to what its pods have on all of their GPUs together; Kubernetes'
// own controller counts what limits say.
func TestAQuotaCountsWhatPodsHoldAndItsStatusWhatTheyWrite(t *testing.T) {
	ctx := begin(t)
	namespace := clustertest.Namespace(t, shared.Client)
	quotas := shared.Client.CoreV1().ResourceQuotas(namespace)
	counted := corev1.DefaultResourceRequestsPrefix + gpuMemory
	if _, err := quotas.Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "shares"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{counted: resource.MustParse("50000")}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	used := func(want int64) {
		t.Helper()
		if err := await.Success(ctx, "the quota to be counted", func(ctx context.Context) error {
			quota, err := quotas.Get(ctx, "shares", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got := quota.Status.Used[counted]; got.Value() != want || len(quota.Status.Used) == 0 {
				return fmt.Errorf("it has used %v, want %d", &got, want)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	used(0)
	two := clustertest.RunPod(ctx, t, shared.Client, share(namespace, "two", 2, 15000, 0))
	used(15000)
	byPath := clustertest.On("node-1", clustertest.IdlePod(namespace, "by-path", nil))
	kube.SetRequests(byPath, `"gpu/a/memory":"10000Mi"`)
	clustertest.RunPod(ctx, t, shared.Client, byPath)
	used(15000)
	third := clustertest.CreatePod(ctx, t, shared.Client, share(namespace, "third", 0, 20000, 0))
	clustertest.AwaitPod(ctx, t, shared.Client, third, "to wait for the quota", waits("would give the pod 20000 of "+
		"nvidia.com/gpumem on all of its devices together: quota \"shares\" of namespace \""+namespace+
		"\" allows 50000, and its other pods hold 40000"))
	used(35000)
	clustertest.DeletePod(ctx, t, shared.Client, two)
	clustertest.AwaitPod(ctx, t, shared.Client, third, "to be ready", kube.Ready)
	used(20000)
}
