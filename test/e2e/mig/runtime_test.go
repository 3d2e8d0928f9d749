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

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
)

// TestAPodWithoutNVIDIAsRuntimeGetsAnEvent has the containerd of the cluster, which
// starts all containers with runc.
func TestAPodWithoutNVIDIAsRuntimeGetsAnEvent(t *testing.T) {
	ctx := begin(t)
	// The metric then counts this test's containers alone.
	if err := shared.Nodes[0].Kubecri.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	awaitOffer(ctx, t, map[corev1.ResourceName]int64{whole: 1})
	namespace := clustertest.Namespace(t, shared.Client)
	one := map[corev1.ResourceName]int64{whole: 1}
	running := clustertest.RunPod(ctx, t, shared.Client, clustertest.IdlePod(namespace, "training", one))
	expectMissing := func(pod *corev1.Pod) {
		t.Helper()
		said := clustertest.AwaitEvent(ctx, t, shared.Client, pod, "DevicesMissing")
		for _, part := range []string{
			`container "main"`, "NVIDIA_VISIBLE_DEVICES=GPU-", "default runtime handler", "starts runc",
			"nvidia-ctk runtime configure",
		} {
			if !strings.Contains(said, part) {
				t.Errorf("the event of pod %s lacks %q: %s", pod.Name, part, said)
			}
		}
	}
	expectMissing(running)
	clustertest.AwaitMetric(ctx, t, shared.Nodes[0],
		`kubecri_containers_without_devices_total{handler="",vendor="nvidia.com"} 1`)
	clustertest.DeletePod(ctx, t, shared.Client, running)

	// The program of most first pods is one that NVIDIA's runtime adds.
	query := kube.NewPod("query", image.Busybox, "nvidia-smi", "-L")
	query.Namespace = namespace
	query.Spec.RestartPolicy = corev1.RestartPolicyNever
	query.Spec.Containers[0].Resources.Limits = running.Spec.Containers[0].Resources.Limits
	expectMissing(clustertest.CreatePod(ctx, t, shared.Client, query))
}

// cdiFile describes the whole GPU, as "nvidia-ctk cdi generate" does: here the device adds a
// variable.
const cdiFile = `{
  "cdiVersion": "0.6.0", "kind": "nvidia.com/gpu",
  "devices": [{"name": "%[1]s", "containerEdits": {"env": ["ADDED=%[1]s"]}}]
}`

func TestAPodGetsItsGPUByCDIWhereTheConfigurationSaysSo(t *testing.T) {
	ctx := begin(t)
	awaitOffer(ctx, t, map[corev1.ResourceName]int64{whole: 1})
	const file = "/var/run/cdi/nvidia.json"
	if err := shared.Nodes[0].Sandbox().Do(func() error {
		if err := os.MkdirAll("/var/run/cdi", 0o755); err != nil {
			return err
		}
		return os.WriteFile(file, fmt.Appendf(nil, cdiFile, nvmltest.UUID(0)), 0o644)
	}); err != nil {
		t.Fatal(err)
	}
	configure(ctx, t, "flags: {migStrategy: mixed, plugin: {deviceListStrategy: cdi-cri}}")
	namespace := clustertest.Namespace(t, shared.Client)
	one := map[corev1.ResourceName]int64{whole: 1}

	pod := clustertest.RunPod(ctx, t, shared.Client, clustertest.IdlePod(namespace, "training", one))

	got, err := shared.Client.Exec(ctx, pod, "main", "sh", "-c", "echo $ADDED $NVIDIA_VISIBLE_DEVICES")
	if want := nvmltest.UUID(0) + " void"; err != nil || strings.TrimSpace(got) != want {
		t.Errorf("the container has %q, %v, want %q", got, err, want)
	}
	clustertest.DeletePod(ctx, t, shared.Client, pod)

	if err := shared.Nodes[0].Sandbox().Do(func() error { return os.Remove(file) }); err != nil {
		t.Fatal(err)
	}
	refused := clustertest.CreatePod(ctx, t, shared.Client, clustertest.IdlePod(namespace, "refused", one))
	clustertest.AwaitPod(ctx, t, shared.Client, refused, "to be refused without the CDI file", isUnresolvable)
	clustertest.DeletePod(ctx, t, shared.Client, refused)
}

// isUnresolvable reports whether the runtime has refused a container of a pod for its CDI device.
func isUnresolvable(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(status corev1.ContainerStatus) bool {
		waiting := status.State.Waiting
		return waiting != nil && strings.Contains(waiting.Message, "unresolvable CDI")
	})
}

// configure starts kubecri with a configuration of the plugin until the test ends.
func configure(ctx context.Context, t *testing.T, content string) {
	t.Helper()
	before, err := os.ReadFile(configuration)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := os.WriteFile(configuration, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		restore := func() error { return os.Remove(configuration) }
		if before != nil {
			restore = func() error { return os.WriteFile(configuration, before, 0o644) }
		}
		if err := restore(); err != nil {
			t.Error(err)
		}
		if err := shared.Nodes[0].Kubecri.Restart(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	if err := shared.Nodes[0].Kubecri.Restart(ctx); err != nil {
		t.Fatal(err)
	}
}
