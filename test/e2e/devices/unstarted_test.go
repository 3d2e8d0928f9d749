// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// The device fails between the binding and the first creation of the container, while an init
// container runs. The pod does not say what it wants then, only how soon.
func TestAContainerThatNeverRanGetsAnotherDeviceWhenItsOwnFails(t *testing.T) {
	skipUnderNRI(t)
	ctx := begin(t)
	node := shared.Nodes[0].Name
	pod := clustertest.On(node, gpuPod(clustertest.Namespace(t, shared.Client), "unstarted", 1))
	pod.Annotations = map[string]string{deviceinfo.DeviceFailureGracePeriodAnnotation: "0s"}
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	gate := pod.Spec.Containers[0].DeepCopy()
	gate.Name, gate.Resources = "gate", corev1.ResourceRequirements{}
	gate.Command = []string{"sh", "-c", "until [ -e /open ]; do sleep 0.1; done"}
	pod.Spec.InitContainers = []corev1.Container{*gate}
	pod = clustertest.CreatePod(ctx, t, shared.Client, pod)
	pod = clustertest.AwaitPod(ctx, t, shared.Client, pod, "to run its init container", func(now *corev1.Pod) bool {
		statuses := now.Status.InitContainerStatuses
		return len(statuses) == 1 && statuses[0].State.Running != nil
	})
	path := slices.Sorted(maps.Keys(allocated(t, pod)))[0]
	_, name, _ := strings.Cut(path, "/gpu/")
	failed, _, _ := strings.Cut(name, "/")
	makeUnhealthy(t, node, failed)

	text := clustertest.AwaitEvent(ctx, t, shared.Client, pod, "DeviceUnhealthy")
	if !strings.Contains(text, failed) || !strings.Contains(text, "which never ran, is given another one") {
		t.Errorf("the event says %q", text)
	}
	if _, err := shared.Client.Exec(ctx, pod, gate.Name, "touch", "/open"); err != nil {
		t.Fatal(err)
	}
	now := clustertest.AwaitPod(ctx, t, shared.Client, pod, "to be ready", kube.Ready)
	if has := expectDevices(ctx, t, now, "main", 1); now.UID != pod.UID || slices.Contains(has, failed) {
		t.Errorf("pod %s has %q, and was %s with %s, which has failed", now.UID, has, pod.UID, failed)
	}
}
