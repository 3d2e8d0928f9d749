// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
)

// A plugin gives its part by a link, under another path and for reading only; by a mount, an
// environment variable, an annotation and CDI. Who has no part is kept from it by the firewall,
// with any fields in the pod.
func TestAPartIsGivenInEveryWayAndTheOthersAreKeptFromIt(t *testing.T) {
	parts := buildPlugin(t, "testdata/parts", "example.com/parts", sdkVersion(t))
	ctx := begin(t)
	node := shared.Nodes[1]
	t.Cleanup(func() {
		const traces = "rm -rf /dev/parts /run/parts /var/run/cdi/example.com-part.json"
		if _, err := node.Run(context.WithoutCancel(ctx), "/bin/sh", "-c", traces); err != nil {
			t.Error(err)
		}
	})
	logs := install(ctx, t, node, map[string]map[string][]byte{"parts.so": parts})
	for _, log := range logs {
		log.await(ctx, t, "/parts.so")
	}
	namespace := clustertest.Namespace(t, shared.Client)
	demanding := corev1.EnvVar{Name: "VISIBLE_PARTS", Value: "all"}

	pod := kube.NewPod("owner", image.Busybox, clustertest.Idle...)
	pod.Namespace = namespace
	kube.SetRequests(pod, `"resource/group/part/a/pieces":1`)
	pod.Spec.Containers[0].Env = []corev1.EnvVar{demanding}
	second := *pod.Spec.Containers[0].DeepCopy()
	second.Name = "second"
	pod.Spec.Containers = append(pod.Spec.Containers, second)
	owner := clustertest.RunPod(ctx, t, shared.Client, pod)

	pod = kube.NewPod("stranger", image.Busybox, clustertest.Idle...)
	pod.Namespace = namespace
	pod.Spec.Containers[0].Env = []corev1.EnvVar{demanding}
	stranger := clustertest.RunPod(ctx, t, shared.Client, clustertest.On(node.Name, pod))

	for _, check := range []struct {
		pod             *corev1.Pod
		container, what string
		command         string
		want            string
	}{
		// there is no driver
		{owner, "main", "may read the device", "dd if=/dev/part count=1 2>&1 || true", "No such device or address"},
		{
			owner, "main", "must not write to it", "dd if=/dev/zero of=/dev/part count=1 2>&1 || true",
			"Operation not permitted",
		},
		{owner, "main", "sees it under no other name", "ls /dev/parts 2>&1 || true", "No such file or directory"},
		{owner, "main", "has the mount", "cat /opt/parts/manual", "read me"},
		{owner, "main", "must not write to it", "touch /opt/parts/x 2>&1 || true", "Read-only file system"},
		{owner, "main", "has the plugin's variable, not the pod's", "echo $VISIBLE_PARTS", "first"},
		{owner, "main", "has what CDI gives", "echo $FROM_CDI", "yes"},
		{owner, "second", "is kept from parts", "echo $VISIBLE_PARTS", "void"},
		{owner, "second", "has no part", "ls /dev/part 2>&1 || true", "No such file or directory"},
		{stranger, "main", "is kept from parts", "echo $VISIBLE_PARTS", "void"},
	} {
		got, err := shared.Client.Exec(ctx, check.pod, check.container, "sh", "-c", check.command)
		if err != nil || !strings.Contains(got, check.want) {
			t.Errorf("container %s of pod %s %s: %s: got %q, %v; want %q", check.container, check.pod.Name, check.what,
				check.command, got, err, check.want)
		}
	}
	annotations, err := node.Run(ctx, "crictl", "inspect", "--output=json", containerID(owner, "main"))
	if err != nil || !strings.Contains(annotations, `"example.com/part": "first"`) {
		t.Errorf("the container's annotations: %v\n%s", err, annotations)
	}
}

// containerID returns the ID by which the runtime knows a container.
func containerID(pod *corev1.Pod, name string) string {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == name {
			_, id, _ := strings.Cut(status.ContainerID, "://")
			return id
		}
	}
	return ""
}
