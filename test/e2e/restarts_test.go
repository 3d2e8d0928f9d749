// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
	corev1 "k8s.io/api/core/v1"
)

func TestKilledProgramsComeBackAndContainersNeverNotice(t *testing.T) {
	node := shared.Nodes[0]
	for name, program := range map[string]*cluster.Component{
		"the scheduler":  shared.Scheduler,
		"kubecri":        node.Kubecri,
		"the kubelet":    node.Kubelet,
		"containerd":     node.Containerd,
		"the API server": shared.APIServer,
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testContext(t)
			namespace := clustertest.Namespace(t, shared.Client)
			before := clustertest.RunPod(ctx, t, shared.Client, webServer("before", namespace, node.Name))

			if err := program.Restart(ctx); err != nil {
				t.Fatal(err)
			}
			if err := shared.AwaitReady(ctx); err != nil {
				t.Fatal(err)
			}

			clustertest.RunPod(ctx, t, shared.Client, webServer("after", namespace, node.Name))
			now := clustertest.AwaitPod(ctx, t, shared.Client, before, "to be ready still", kube.Ready)
			was, is := before.Status.ContainerStatuses[0], now.Status.ContainerStatuses[0]
			if is.ContainerID != was.ContainerID || is.RestartCount != was.RestartCount {
				t.Errorf("the container was %s, restarted %d times; now it is %s, restarted %d times",
					was.ContainerID, was.RestartCount, is.ContainerID, is.RestartCount)
			}
		})
	}
}

func TestPodsComeBackAfterTheirNodeHadAPowerCut(t *testing.T) {
	ctx := testContext(t)
	node := shared.Nodes[len(shared.Nodes)-1]
	before := clustertest.RunPod(ctx, t, shared.Client, webServer("web", clustertest.Namespace(t, shared.Client),
		node.Name))

	if err := node.Reboot(ctx); err != nil {
		t.Fatal(err)
	}

	clustertest.AwaitPod(ctx, t, shared.Client, before, "to run in a new container", func(pod *corev1.Pod) bool {
		return kube.Ready(pod) &&
			pod.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID
	})
	if err := shared.AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestASecondSchedulerTakesThePodsThatNameIt(t *testing.T) {
	ctx := testContext(t)
	config := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(config, shared.SchedulerConfig("second"), 0o644); err != nil {
		t.Fatal(err)
	}
	second := shared.NewScheduler("second-scheduler", 10270, cluster.Program{Args: []string{"--config=" + config}})
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := second.Terminate(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	pod := webServer("web", clustertest.Namespace(t, shared.Client), shared.Nodes[0].Name)
	pod.Spec.SchedulerName = "second"
	clustertest.RunPod(ctx, t, shared.Client, pod)
}
