// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

func TestPrometheusSeesFaultsAndTheirRepair(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	server := startPrometheus(ctx, t)
	namespace := clustertest.Namespace(t, shared.Client)
	clustertest.RunPod(ctx, t, shared.Client, clustertest.On("node-1",
		clustertest.IdlePod(namespace, "trainer", gpus(8))))
	for _, expr := range []string{
		`up{job="kubecri",instance="node-1"} == 1`, `up{job="kubecri",instance="node-2"} == 1`,
		`up{job="kubedevice-scheduler"} == 1`, `kubecri_device_held{pod="trainer"}`,
	} {
		clustertest.Await(ctx, t, "Prometheus to have "+expr, func() bool {
			series, err := server.query(ctx, expr)
			return err == nil && series > 0
		})
	}

	t.Run("each query of the boards is answered", func(t *testing.T) { answersBoards(ctx, t, server) })
	began := time.Now()
	if *pictures {
		runInference(ctx, t)
	}
	t.Run("a device that a container holds fails", func(t *testing.T) {
		inventory := filepath.Join(files, "node-1.yaml")
		alert := map[string]string{
			"alertname": "KubeDeviceUnhealthyInUse", "instance": "node-1", "device": "gpu-3", "pod": "trainer",
		}
		server.awaitAlert(ctx, t, false, alert)
		if err := setInventory(inventory, "unhealthy: [gpu-3]\n"); err != nil {
			t.Fatal(err)
		}
		server.awaitAlert(ctx, t, true, alert)
		if err := setInventory(inventory, ""); err != nil {
			t.Fatal(err)
		}
		server.awaitAlert(ctx, t, false, alert)
	})
	t.Run("kubecri is gone", func(t *testing.T) {
		alert := map[string]string{"alertname": "KubecriDown", "instance": "node-2"}
		server.awaitAlert(ctx, t, false, alert)
		if err := shared.Nodes[1].Kubecri.Kill9(ctx); err != nil {
			t.Fatal(err)
		}
		server.awaitAlert(ctx, t, true, alert)
		if err := shared.Nodes[1].Kubecri.Start(); err != nil {
			t.Fatal(err)
		}
		server.awaitAlert(ctx, t, false, alert)
	})
	t.Run("a pod gets past the scheduler", func(t *testing.T) {
		alert := map[string]string{"alertname": "KubeDeviceUnallocatedPods"}
		server.awaitAlert(ctx, t, false, alert)
		pod := clustertest.IdlePod(namespace, "past", gpus(1))
		pod.Spec.NodeName = "node-2"
		pod = clustertest.CreatePod(ctx, t, shared.Client, pod)
		server.awaitAlert(ctx, t, true, alert)
		clustertest.DeletePod(ctx, t, shared.Client, pod)
		server.awaitAlert(ctx, t, false, alert)
	})
	if *pictures {
		drawBoards(ctx, t, server, began)
	}
}

func gpus(n int64) map[corev1.ResourceName]int64 {
	return map[corev1.ResourceName]int64{corev1.ResourceName(gpu.Resource): n}
}
