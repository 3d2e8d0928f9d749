// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

// A GPU has an XID. kubecri starts with that XID switched off, and then as it was.
func TestAnXIDIsLoggedOnceAndForgottenOnceItIsSwitchedOff(t *testing.T) {
	ctx := begin(t)
	n := shared.Nodes[1]
	library, gpu := libraries[n.Name], nvmltest.UUID(0)
	awaitGPUs(ctx, t, n.Name)
	logged := logOf(t, n.Kubecri)
	repair := sync.OnceFunc(func() { library.Repair(t) })
	t.Cleanup(repair)
	library.Break(t, 0, 79)
	awaitSaid(ctx, t, n.Name, gpu, "Xid79")
	library.Break(t, 0, 79)
	library.Break(t, 0, 31) // it is read after the others
	ignored := fmt.Sprintf("NVIDIA GPU %s has reported XID 31, which is ignored", gpu)
	var now string
	clustertest.Await(ctx, t, "the log to have the XID that is no fault", func() bool {
		now = strings.TrimPrefix(logOf(t, n.Kubecri), logged)
		return strings.Contains(now, ignored)
	})
	for _, line := range []string{
		ignored, fmt.Sprintf("NVIDIA GPU %s has reported XID 79, which makes it unhealthy", gpu),
		fmt.Sprintf("NVIDIA GPU %s is unhealthy: Xid79: ", gpu),
	} {
		if count := strings.Count(now, line); count != 1 {
			t.Errorf("%d lines of the log say %q, want 1:\n%s", count, line, now)
		}
	}
	repair()

	program := programs[n.Name]
	program.Env = append(slices.Clone(program.Env), "DP_DISABLE_HEALTHCHECKS=79")
	without := n.NewKubecri("kubecri-without-xid-79", program)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		if without.PID() == 0 {
			return
		}
		if err := without.Terminate(ctx); err != nil {
			t.Error(err)
		}
		if err := n.Kubecri.Start(); err != nil {
			t.Error(err)
		}
	})
	for _, turn := range []struct{ before, next *cluster.Component }{{n.Kubecri, without}, {without, n.Kubecri}} {
		if err := turn.before.Terminate(ctx); err != nil {
			t.Fatal(err)
		}
		if err := turn.next.Start(); err != nil {
			t.Fatal(err)
		}
		healthy := fmt.Sprintf(`kubecri_device_healthy{device=%q,resource=%q} `, gpu, gpus)
		clustertest.Await(ctx, t, turn.next.Name+" to know how the GPU is", func() bool {
			metrics, err := n.Get(ctx, "/metrics")
			return err == nil && strings.Contains(metrics, "\n"+healthy)
		})
		clustertest.AwaitMetric(ctx, t, n, healthy+"1")
		awaitGPUs(ctx, t, n.Name)
	}
}

// logOf returns the log of a program.
func logOf(t *testing.T, program *cluster.Component) string {
	t.Helper()
	content, err := os.ReadFile(program.LogPath)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// The variable is one that several programs of NVIDIA's container runtime read.
func TestARequestThatBypassesTheSchedulerIsNamedAndCountedOnce(t *testing.T) {
	ctx := begin(t)
	n := shared.Nodes[1]
	awaitGPUs(ctx, t, n.Name)
	before := attempts(ctx, t, n)
	pod := clustertest.On(n.Name, clustertest.IdlePod(clustertest.Namespace(t, shared.Client), "bypasses", nil))
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"}}
	pod = clustertest.RunPod(ctx, t, shared.Client, pod)
	text := clustertest.AwaitEvent(ctx, t, shared.Client, pod, "DeviceRequestIgnored")
	if count := strings.Count(text, "NVIDIA_VISIBLE_DEVICES=all"); count != 1 {
		t.Errorf("the event names the variable %d times: %s", count, text)
	}
	if got := attempts(ctx, t, n) - before; got != 1 {
		t.Errorf("%d attempts are counted, want 1", got)
	}
}

// attempts returns how many requests that bypass the scheduler the node's kubecri has counted.
func attempts(ctx context.Context, t *testing.T, n *cluster.Node) (all int) {
	t.Helper()
	metrics, err := n.Get(ctx, "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(metrics) {
		if !strings.HasPrefix(line, "kubecri_device_firewall_attempts_total{") {
			continue
		}
		var count int
		if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' '):], &count); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all += count
	}
	return all
}
