// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package vendors

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

// An init container has a GPU, and NVIDIA's plugin leaves before the container that is to have it
// next is created: it waits for the plugin as after a reboot, but not for ever.
func TestAPodWhosePluginLeavesBeforeItsContainerStartsIsEvicted(t *testing.T) {
	ctx := begin(t)
	n := nodes[0]
	namespace := clustertest.Namespace(t, shared.Client)
	pod := clustertest.On(n.Name, clustertest.IdlePod(namespace, "gated", limits{gpus: 1}))
	pod.Annotations = map[string]string{deviceinfo.DeviceFailureGracePeriodAnnotation: "0s"}
	gate := pod.Spec.Containers[0].DeepCopy()
	gate.Name, gate.Command = "gate", []string{"sh", "-c", "until [ -e /open ]; do sleep 0.1; done"}
	pod.Spec.InitContainers = []corev1.Container{*gate}
	pod = clustertest.CreatePod(ctx, t, shared.Client, pod)
	pod = clustertest.AwaitPod(ctx, t, shared.Client, pod, "to run its init container", func(now *corev1.Pod) bool {
		statuses := now.Status.InitContainerStatuses
		return len(statuses) == 1 && statuses[0].State.Running != nil
	})

	n.setLate(true)
	t.Cleanup(func() { n.setLate(false) })
	if err := n.plugins[nvidia].Terminate(ctx); err != nil {
		t.Fatal(err)
	}
	n.awaitOffer(ctx, t, gpus, 1) // the pod's own
	if _, err := shared.Client.Exec(ctx, pod, gate.Name, "touch", "/open"); err != nil {
		t.Fatal(err)
	}
	text := clustertest.AwaitEvent(ctx, t, shared.Client, pod, "DeviceUnhealthy")
	for _, part := range []string{`container "main"`, "PluginGone", "no device plugin serves them"} {
		if !strings.Contains(text, part) {
			t.Errorf("the event lacks %q: %s", part, text)
		}
	}
	clustertest.AwaitEvent(ctx, t, shared.Client, pod, "DeviceFailureEvicted")
	clustertest.Await(ctx, t, "the pod to be gone", func() bool {
		now, err := shared.Client.CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && now.UID != pod.UID
	})
}
