// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// A vendor's plugin panics on each call for some pods of a tenant, with the same request and with
// several. They pend, with the reason in their events; 20 pods of others start meanwhile, within
// their usual time.
func TestPodsThatMakeAPluginPanicPendAndOthersStart(t *testing.T) {
	faulty := buildPlugin(t, "testdata/faulty", "example.com/faulty", sdkVersion(t))
	ctx := begin(t)
	log := install(ctx, t, shared.Nodes[1], map[string]map[string][]byte{"faulty.so": faulty})["scheduler"]
	log.await(ctx, t, "/faulty.so")
	if lines := log.lines(t, "/faulty.so"); !strings.Contains(lines[0], "Loaded a plugin") {
		t.Fatalf("the scheduler does not load the plugin: %s", lines[0])
	}
	tenant, others := clustertest.Namespace(t, shared.Client), clustertest.Namespace(t, shared.Client)
	usual := runAll(ctx, t, others, "usual")

	why := map[*corev1.Pod]string{}
	for i := range 6 {
		for name, recipe := range map[string]int{fmt.Sprint("same-", i): 0, fmt.Sprint("several-", i): 1 + i} {
			pod := gpuPod(tenant, name, 1)
			kube.SetRequests(pod, fmt.Sprintf(`"faulty/panic":%d`, 1+recipe))
			why[clustertest.CreatePod(ctx, t, shared.Client, pod)] = fmt.Sprintf(`device scheduler "faulty": `+
				"PodFitsDevice: it fails for what this pod requests: panic: no recipe for %d", 1+recipe)
		}
	}
	meanwhile := runAll(ctx, t, others, "others")
	t.Logf("20 pods ran in %v, and in %v with pods that make a plugin panic", usual, meanwhile)
	if limit := 3*usual + 15*time.Second; meanwhile > limit {
		t.Errorf("20 pods ran in %v with pods that make a plugin panic, want at most %v", meanwhile, limit)
	}
	for pod, reason := range why {
		awaitEvent(ctx, t, pod, "FailedScheduling", reason)
		clustertest.AwaitPod(ctx, t, shared.Client, pod, "to pend", kube.Unschedulable)
	}
}

// runAll runs 20 pods with a GPU to their end, and returns how long that took.
func runAll(ctx context.Context, t *testing.T, namespace, name string) time.Duration {
	t.Helper()
	start := time.Now()
	pods := make([]*corev1.Pod, 20)
	for i := range pods {
		pod := gpuPod(namespace, fmt.Sprint(name, "-", i), 1)
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Spec.Containers[0].Command = []string{"true"}
		pods[i] = clustertest.CreatePod(ctx, t, shared.Client, pod)
	}
	for _, pod := range pods {
		clustertest.AwaitPod(ctx, t, shared.Client, pod, "to succeed", kube.Succeeded)
	}
	return time.Since(start)
}

// awaitEvent waits until an event of a pod with the reason has a text.
func awaitEvent(ctx context.Context, t *testing.T, pod *corev1.Pod, reason, text string) {
	t.Helper()
	clustertest.AwaitSuccess(ctx, t, fmt.Sprintf("pod %s to have an event with %q", pod.Name, text), func() error {
		events, err := shared.Client.PodEvents(ctx, pod)
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range events {
			if event.Reason == reason && strings.Contains(event.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("it is %s", shared.Client.Describe(ctx, pod))
	})
}
