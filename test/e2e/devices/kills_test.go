// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// stages are those of a pod's life in which programs are killed.
var stages = []struct {
	when string
	is   func(*corev1.Pod) bool
	// deleted says that the pod is deleted right before the kill.
	deleted bool
}{
	{when: "as soon as a pod is created", is: func(*corev1.Pod) bool { return true }},
	{when: "as soon as a pod is bound", is: kube.Scheduled},
	{when: "as soon as a pod is ready", is: kube.Ready},
	{when: "as soon as a pod is deleted", is: kube.Ready, deleted: true},
}

func TestKilledProgramsGiveNoDeviceTwiceAndRunningContainersNeverNotice(t *testing.T) {
	clustertest.OnlyInFull(t, "test/e2e/robustness kills kubecri, and test/e2e/scheduler the scheduler")
	node := shared.Nodes[0]
	ctx := begin(t)
	namespace := clustertest.Namespace(t, shared.Client)
	var bystanders []*corev1.Pod
	devices := map[string][]string{}
	for _, node := range shared.Nodes {
		pod := clustertest.RunPod(ctx, t, shared.Client,
			clustertest.On(node.Name, gpuPod(namespace, "bystander-on-"+node.Name, 1)))
		bystanders = append(bystanders, pod)
		devices[pod.Name] = expectDevices(ctx, t, pod, "main", 1)
	}
	checked := clustertest.WatchForDoubles(t.Context(), shared.Client, namespace)
	endChurn := churn(ctx, namespace)

	for name, program := range map[string]*cluster.Component{"the scheduler is killed ": shared.Scheduler,
		"kubecri is killed ": node.Kubecri} {
		for _, stage := range stages {
			t.Run(name+stage.when, func(t *testing.T) {
				ctx := begin(t)
				pod := clustertest.CreatePod(ctx, t, shared.Client,
					clustertest.On(node.Name, gpuPod(namespace, "witness", 2)))
				pod = clustertest.AwaitPod(ctx, t, shared.Client, pod, "to live", stage.is)
				if stage.deleted {
					deleteSoon(ctx, t, pod)
				}

				if err := program.Restart(ctx); err != nil {
					t.Fatal(err)
				}

				if !stage.deleted {
					pod = clustertest.AwaitPod(ctx, t, shared.Client, pod, "to be ready after all", kube.Ready)
					expectDevices(ctx, t, pod, "main", 2)
					deleteSoon(ctx, t, pod)
				}
				awaitPods(ctx, t, namespace, "to lose the witness",
					func(all podSet) bool { return all["witness"] == nil })
			})
		}
	}

	if err := endChurn(); err != nil {
		t.Error(err)
	}
	if err := checked(); err != nil {
		t.Error(err)
	}
	for _, before := range bystanders {
		after := clustertest.AwaitPod(ctx, t, shared.Client, before, "to be ready still", kube.Ready)
		if diff := cmp.Diff(before.Status.ContainerStatuses, after.Status.ContainerStatuses); diff != "" {
			t.Errorf("the container of pod %s noticed something (-before +after the kills):\n%s", after.Name, diff)
		}
		if diff := cmp.Diff(devices[after.Name],
			inspect(ctx, t, clustertest.RestartContainer(ctx, t, shared.Client, after), "main").Visible); diff != "" {
			t.Errorf("devices of pod %s (-before +in a new container after the kills):\n%s", after.Name, diff)
		}
	}
}

func deleteSoon(ctx context.Context, t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if err := shared.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// churn creates pods that request 1, 2 and 3 devices and deletes each as soon as it is ready, over
// and over, until end is called. It returns an error if a pod did not become ready.
func churn(ctx context.Context, namespace string) (end func() error) {
	stop := make(chan struct{})
	var lanes errgroup.Group
	for count := range int64(3) {
		lanes.Go(func() error {
			for turn := 0; ; turn++ {
				select {
				case <-stop:
					return nil
				default:
				}
				pod, err := shared.Client.RunPod(ctx,
					gpuPod(namespace, fmt.Sprintf("churn-%d-%d", count+1, turn), count+1))
				if err != nil {
					return err
				}
				if err := shared.Client.DeletePod(ctx, pod); err != nil {
					return err
				}
			}
		})
	}
	return func() error {
		close(stop)
		return lanes.Wait()
	}
}
