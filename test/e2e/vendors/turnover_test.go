// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package vendors

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// podCount is how many pods take turns with the devices. requests are what they request, one after
// the other: ten fit at a time.
const podCount = 100

var requests = []limits{
	{"gpu.intel.com/i915": 1},
	{"gpu.intel.com/i915": 2, "npu.intel.com/accel": 1},
	{"nvidia.com/gpu": 1},
	{"nvidia.com/gpu": 2, "gpu.intel.com/i915": 1},
	{"npu.intel.com/accel": 1, "nvidia.com/gpu": 1},
}

func TestAHundredPodsTakeTurnsWhileEveryProgramIsKilledAndNoDeviceIsGivenTwiceOrLost(t *testing.T) {
	begin(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	namespace := clustertest.Namespace(t, shared.Client)
	for i := range podCount {
		pod := clustertest.IdlePod(namespace, fmt.Sprintf("pod-%02d", i), requests[i%len(requests)])
		pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure // containerd may be killed while it starts a container
		// What it prints goes to a file that the kubelet reads, as its log goes through containerd,
		// which may be killed meanwhile.
		command := "exec >" + corev1.TerminationMessagePathDefault + "; " + script + "; sleep 1"
		// All nodes have the same hardware.
		pod.Spec.Containers[0].Command = append([]string{"sh", "-c", command}, nodes[0].probe()[3:]...)
		if _, err := shared.Client.CreatePod(ctx, pod); err != nil {
			t.Fatal(err)
		}
	}

	programs := everyProgram()
	for i, program := range programs {
		awaitEnded(ctx, t, namespace, (i+1)*podCount/(len(programs)+2))
		restart(ctx, t, program)
	}
	pods := awaitEnded(ctx, t, namespace, podCount)

	holders := map[string][]*corev1.Pod{} // of each device of each node
	for _, pod := range pods {
		if pod.Status.Phase != corev1.PodSucceeded {
			t.Errorf("%s", shared.Client.Describe(ctx, &pod))
			continue
		}
		ids, err := chosen(&pod)
		if err != nil {
			t.Error(err)
			continue
		}
		printed := pod.Status.ContainerStatuses[0].State.Terminated.Message
		if err := nodeOf(&pod).checkProbe(ids, printed); err != nil {
			t.Errorf("pod %s on %s: %v; it printed:\n%s", pod.Name, pod.Spec.NodeName, err, printed)
		}
		for resource, all := range ids {
			for _, id := range all {
				device := fmt.Sprintf("%s of %s on %s", id, resource, pod.Spec.NodeName)
				for _, other := range holders[device] {
					if overlap(&pod, other) {
						t.Errorf("the pods %s and %s both had %s", pod.Name, other.Name, device)
					}
				}
				holders[device] = append(holders[device], &pod)
			}
		}
	}
	expectNoneLost(ctx, t, namespace)
}

// everyProgram are the programs of the cluster that have a part in it.
func everyProgram() []*cluster.Component {
	programs := []*cluster.Component{shared.Scheduler, shared.APIServer, shared.ControllerManager}
	for _, n := range nodes {
		programs = append(programs, n.plugins[nvidia], n.Kubecri, n.plugins[intelGPU], n.Kubelet, n.plugins[intelNPU],
			n.Containerd)
	}
	return programs
}

// awaitEnded waits until so many pods of a namespace have ended, with or without success, and
// returns all.
func awaitEnded(ctx context.Context, t *testing.T, namespace string, count int) []corev1.Pod {
	t.Helper()
	var all []corev1.Pod
	clustertest.AwaitSuccess(ctx, t, fmt.Sprintf("%d pods to end", count), func() error {
		ended := 0
		pods, err := shared.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err == nil { // otherwise the API server is being restarted
			for _, pod := range pods.Items {
				if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
					ended++
				}
			}
		}
		if err == nil && ended < count {
			err = fmt.Errorf("%d have", ended)
		}
		if err == nil {
			all = pods.Items
		}
		return err
	})
	return all
}

// overlap says whether two pods that have ended had their devices at the same time, as far as whole
// seconds tell: from when the kubelet took the pod on. When its container started is not always
// known: containerd may be killed while it starts it.
func overlap(a, b *corev1.Pod) bool {
	span := func(pod *corev1.Pod) (from, to time.Time) {
		return pod.Status.StartTime.Time, pod.Status.ContainerStatuses[0].State.Terminated.FinishedAt.Time
	}
	fromA, toA := span(a)
	fromB, toB := span(b)
	return fromA.Before(toB) && fromB.Before(toA)
}

// expectNoneLost runs a pod on each node that requests all devices of the crowd's resources.
func expectNoneLost(ctx context.Context, t *testing.T, namespace string) {
	t.Helper()
	var group errgroup.Group
	for _, n := range nodes {
		all := limits{}
		for _, name := range []string{intelGPU, intelNPU, nvidia} {
			for resource, devices := range n.Plugin(name).Resources() {
				all[corev1.ResourceName(resource)] = int64(len(devices))
			}
		}
		group.Go(func() error {
			pod, err := shared.Client.CreatePod(ctx,
				clustertest.On(n.Name, clustertest.IdlePod(namespace, "all-of-"+n.Name, all)))
			if err != nil {
				return err
			}
			_, err = shared.Client.AwaitPod(ctx, pod, "to be ready with all devices", kube.Ready)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}
