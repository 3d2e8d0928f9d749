// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
)

// exporters is the namespace of the service account that the firewall of all nodes lets through.
const exporters, exporter = "exporters", "dcgm-exporter"

// requesting returns a pod that requests of NVIDIA's container runtime for all GPUs.
func requesting(namespace, account string) *corev1.Pod {
	pod := kube.NewPod("requesting", image.Busybox, clustertest.Idle...)
	pod.Namespace, pod.Spec.ServiceAccountName = namespace, account
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"}}
	return clustertest.On("node-1", pod)
}

func TestAPodThatRequestsGPUsOfTheContainerRuntimeGetsNone(t *testing.T) {
	ctx := begin(t)
	namespace := clustertest.Namespace(t, shared.Client)
	expectVisible := func(pod *corev1.Pod, want string) {
		t.Helper()
		got, err := shared.Client.Exec(ctx, pod, "main", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES")
		if err != nil || strings.TrimSpace(got) != want {
			t.Errorf("pod %s/%s is started with NVIDIA_VISIBLE_DEVICES=%s, want %s (%v)", pod.Namespace, pod.Name, got,
				want, err)
		}
	}

	plain := clustertest.RunPod(ctx, t, shared.Client, requesting(namespace, "default"))
	expectVisible(plain, "void")
	awaitEvent(ctx, t, plain, "DeviceRequestIgnored", "NVIDIA_VISIBLE_DEVICES=all")

	refused := requesting(namespace, "default")
	refused.Name = "refused"
	refused.Annotations = map[string]string{"cdi.k8s.io/all": "nvidia.com/gpu=all"}
	refused = clustertest.CreatePod(ctx, t, shared.Client, refused)
	awaitEvent(ctx, t, refused, "DevicesRefused", "annotation cdi.k8s.io/all (nvidia.com/gpu=all)")

	makeAccount(ctx, t)
	expectVisible(clustertest.RunPod(ctx, t, shared.Client, requesting(exporters, exporter)), "all")
	other := requesting(exporters, "default")
	other.Name = "other"
	expectVisible(clustertest.RunPod(ctx, t, shared.Client, other), "void")
}

// makeAccount makes the exporter's service account, and removes its namespace after the test.
func makeAccount(ctx context.Context, t *testing.T) {
	t.Helper()
	_, err := shared.Client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: exporters}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := shared.Client.CoreV1().Namespaces().Delete(context.WithoutCancel(ctx), exporters, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	if err := shared.Client.AwaitServiceAccount(ctx, exporters); err != nil {
		t.Fatal(err)
	}
	_, err = shared.Client.CoreV1().ServiceAccounts(exporters).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: exporter}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
