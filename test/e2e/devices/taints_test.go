// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// wakes is how soon a pod runs after what kept it waiting is gone.
const wakes = time.Minute

func TestACordonedDeviceIsForThoseAloneThatTolerateIt(t *testing.T) {
	ctx := begin(t)
	k := newKubectlDevice(ctx, t)
	node := shared.Nodes[0]
	namespace := clustertest.Namespace(t, shared.Client)
	taint := func(args ...string) string {
		t.Helper()
		stdout, stderr, status := k.run(args...)
		if status != 0 {
			t.Fatalf("kubectl device %q: exit status %d: %s", args, status, stderr)
		}
		return stdout
	}
	t.Cleanup(func() {
		k.ctx = context.WithoutCancel(ctx)
		taint("taint", node.Name, deviceinfo.CordonKey+"-", "maintenance-")
	})
	if said := taint("cordon", node.Name); strings.Count(said, " cordoned\n") != perNode {
		t.Fatalf("kubectl device cordon %s says %s", node.Name, said)
	}
	for _, program := range []*cluster.Component{shared.Scheduler, node.Kubecri} {
		if err := program.Restart(ctx); err != nil {
			t.Fatal(err)
		}
	}

	waiting := clustertest.CreatePod(ctx, t, shared.Client, clustertest.On(node.Name, gpuPod(namespace, "waiting", 1)))
	// The first reason may be that kubecri, which was restarted, has not reported yet.
	const reason = "1 have 8 GPUs with the taint kubedevice.io/unschedulable:NoSchedule, which the pod does not " +
		"tolerate"
	waiting = clustertest.AwaitPod(ctx, t, shared.Client, waiting, "to wait because "+reason,
		func(now *corev1.Pod) bool { return strings.Contains(unschedulable(now), reason) })
	tolerant := clustertest.On(node.Name, gpuPod(namespace, "tolerant", 1))
	tolerant.Spec.Tolerations = []corev1.Toleration{{Key: deviceinfo.CordonKey, Operator: corev1.TolerationOpExists}}
	tolerant = clustertest.RunPod(ctx, t, shared.Client, tolerant)
	held := expectDevices(ctx, t, tolerant, "main", 1)

	freed := "gpu-5"
	if slices.Contains(held, freed) {
		freed = "gpu-6"
	}
	began := time.Now()
	taint("uncordon", node.Name+"/"+freed)
	soon, cancel := context.WithTimeout(ctx, wakes)
	defer cancel()
	waiting = clustertest.AwaitPod(soon, t, shared.Client, waiting, "to run on what is uncordoned", kube.Ready)
	t.Logf("the pod was ready %v after kubectl device uncordon began", time.Since(began).Round(time.Millisecond))
	if got := expectDevices(ctx, t, waiting, "main", 1); !slices.Equal(got, []string{freed}) {
		t.Errorf("the pod got %q, and %s is uncordoned", got, freed)
	}

	taint("taint", node.Name+"/"+freed, node.Name+"/"+held[0], "maintenance:NoExecute")
	expectEviction(ctx, t, waiting)
	expectEviction(ctx, t, tolerant)
}

func TestNoExecuteEvictsTheHolderOfTheDeviceAndNoOtherPod(t *testing.T) {
	ctx := begin(t)
	k := newKubectlDevice(ctx, t)
	node := shared.Nodes[0]
	namespace := clustertest.Namespace(t, shared.Client)
	holder := clustertest.RunPod(ctx, t, shared.Client, clustertest.On(node.Name, gpuPod(namespace, "holder", 1)))
	tolerant := clustertest.On(node.Name, gpuPod(namespace, "tolerant", 1))
	tolerant.Spec.Tolerations = []corev1.Toleration{{Key: "maintenance", Operator: corev1.TolerationOpExists}}
	tolerant = clustertest.RunPod(ctx, t, shared.Client, tolerant)
	other := clustertest.RunPod(ctx, t, shared.Client, clustertest.On(node.Name, gpuPod(namespace, "other", 1)))
	tainted := []string{
		node.Name + "/" + expectDevices(ctx, t, holder, "main", 1)[0],
		node.Name + "/" + expectDevices(ctx, t, tolerant, "main", 1)[0],
	}
	t.Cleanup(func() {
		k.ctx = context.WithoutCancel(ctx)
		if _, stderr, status := k.run("taint", node.Name, "maintenance-"); status != 0 {
			t.Error(stderr)
		}
	})
	args := slices.Concat([]string{"taint"}, tainted, []string{"maintenance:NoExecute"})
	if _, stderr, status := k.run(args...); status != 0 {
		t.Fatal(stderr)
	}
	expectEviction(ctx, t, holder)
	for _, before := range []*corev1.Pod{tolerant, other} {
		after := clustertest.AwaitPod(ctx, t, shared.Client, before, "to be ready still", kube.Ready)
		if diff := cmp.Diff(before.Status.ContainerStatuses, after.Status.ContainerStatuses); diff != "" {
			t.Errorf("the container of pod %s noticed something (-before +after):\n%s", after.Name, diff)
		}
	}
	if out, _, _ := k.run("nodes", node.Name); strings.Count(out, "Healthy,Tainted") != 2 {
		t.Errorf("kubectl device nodes does not show two tainted GPUs:\n%s", out)
	}
}

// expectEviction waits until a pod is gone, and an event says that a taint of its device was the
// reason.
func expectEviction(ctx context.Context, t *testing.T, pod *corev1.Pod) {
	t.Helper()
	clustertest.AwaitSuccess(ctx, t, "pod "+pod.Name+" to be evicted", func() error {
		now, err := shared.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && now.UID != pod.UID {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("it is %s", shared.Client.Describe(ctx, now))
		}
		return err
	})
	awaitEvent(ctx, t, pod, "DeviceTaintEvicted", "maintenance:NoExecute")
}
