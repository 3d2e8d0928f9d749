// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// shortOfDisk makes the kubelet find that its images' disk, however large and empty, has too little
// space left.
const shortOfDisk = `
evictionHard: {imagefs.available: 99.99%}
imageMinimumGCAge: 1ms
`

func TestANodeShortOfDiskRemovesDeadContainersAndUnusedImagesAndEvictsPods(t *testing.T) {
	onBothNodes(t, func(ctx context.Context, t *testing.T, node *cluster.Node) {
		images := openStore(t, node, "127.0.0.1:5005", false)
		namespace := clustertest.Namespace(t, shared.Client)
		done := podIn(namespace, node, "done", "true")
		done.Spec.Containers[0].Image, done.Spec.RestartPolicy = images.image, corev1.RestartPolicyNever
		done = clustertest.CreatePod(ctx, t, shared.Client, done)
		clustertest.AwaitPod(ctx, t, shared.Client, done, "to have ended", kube.Succeeded)
		holder := clustertest.RunPod(ctx, t, shared.Client, podIn(namespace, node, "victim", clustertest.Idle...))
		named := func(printed string) bool { return strings.Contains(printed, strings.TrimSuffix(images.image, ":1")) }
		gone := func(printed string) bool { return !named(printed) }
		awaitPrinted(ctx, t, node, "the image of a dead container to be there", named, "crictl", "images")

		defer func() { // busybox is unused, too, as soon as the holder is gone
			if err := node.LoadImages(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		}()
		withSettings(ctx, t, node, shortOfDisk, func() {
			clustertest.AwaitPod(ctx, t, shared.Client, holder, "to be evicted", evicted)
			awaitDiskPressure(ctx, t, node, corev1.ConditionTrue)
			awaitPrinted(ctx, t, node, "the dead container to be removed", empty, "crictl", "ps", "--all", "--quiet",
				"--label=io.kubernetes.pod.uid="+string(done.UID))
			awaitPrinted(ctx, t, node, "the unused image to be removed", gone, "crictl", "images")
		})

		awaitDiskPressure(ctx, t, node, corev1.ConditionFalse)
		next := podIn(namespace, node, "next", clustertest.Idle...)
		next.Spec.Containers[0].Image = images.image
		clustertest.RunPod(ctx, t, shared.Client, next)
	})
}

func evicted(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == "Evicted"
}

func awaitDiskPressure(ctx context.Context, t *testing.T, node *cluster.Node, want corev1.ConditionStatus) {
	t.Helper()
	_, err := shared.Client.AwaitNode(ctx, node.Name, "to say of disk pressure: "+string(want),
		func(n *corev1.Node) bool {
			tainted := false
			for _, taint := range n.Spec.Taints {
				tainted = tainted || taint.Key == corev1.TaintNodeDiskPressure
			}
			return statusOf(n, corev1.NodeDiskPressure) == want && tainted == (want == corev1.ConditionTrue)
		})
	if err != nil {
		t.Fatal(err)
	}
}

func TestOneDeadContainerIsKeptOfACrashLoop(t *testing.T) {
	onBothNodes(t, func(ctx context.Context, t *testing.T, node *cluster.Node) {
		pod := clustertest.CreatePod(ctx, t, shared.Client, newPod(t, node, "false"))
		clustertest.AwaitPod(ctx, t, shared.Client, pod, "to have ended four times",
			func(pod *corev1.Pod) bool { return container(pod).RestartCount >= 3 })

		awaitPrinted(ctx, t, node, "one dead container, and at most one that just ended", func(ids string) bool {
			lines := strings.Count(ids, "\n")
			return lines == 1 || lines == 2
		}, "crictl", "ps", "--quiet", "--state=Exited", "--label=io.kubernetes.pod.uid="+string(pod.UID))
	})
}

func TestAPodThatWritesMoreThanItsLimitIsEvicted(t *testing.T) {
	compare(t, func(ctx context.Context, t *testing.T, node *cluster.Node) string {
		pod := newPod(t, node, "sh", "-c", "head -c 16777216 /dev/zero >/tmp/fill; exec sleep 86400")
		pod.Spec.Containers[0].Resources = limits("ephemeral-storage=4Mi")
		pod = clustertest.AwaitPod(ctx, t, shared.Client, clustertest.CreatePod(ctx, t, shared.Client, pod),
			"to be evicted", evicted)
		if !strings.Contains(pod.Status.Message, "4Mi") {
			t.Errorf("the message does not name the limit: %s", pod.Status.Message)
		}
		return pod.Status.Message
	})
}

func empty(text string) bool { return strings.TrimSpace(text) == "" }

// awaitPrinted waits until what a program prints on a node is as it should be. what completes the
// sentence "wait for ...".
func awaitPrinted(ctx context.Context, t *testing.T, node *cluster.Node, what string, is func(string) bool,
	program string, args ...string) {
	t.Helper()
	if err := await.Success(ctx, what, func(ctx context.Context) error {
		printed, err := node.Run(ctx, program, args...)
		if err == nil && !is(printed) {
			err = fmt.Errorf("%s prints %q", program, printed)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
