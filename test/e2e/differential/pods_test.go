// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
)

// prelude has what the commands of probes call: can says what may be done with a device node.
const prelude = `can() {
  [ -e "$1" ] || { echo "$1 is not there"; return; }
  r=r; w=w
  (exec 3<"$1") 2>&1 | grep -q "not permitted" && r=
  (exec 3>"$1") 2>&1 | grep -q "not permitted" && w=
  echo "$1 $r$w"
}
`

// The times that pods have.
const (
	podTimeout = 3 * time.Minute // to end, or to be ready: many start at the same time
	// failureTimeout is how long a container must fail to be created to count as one that does not
	// run: both hosts try again.
	failureTimeout = 15 * time.Second
)

// doesNotRun is the outcome of a pod whose container is not created.
const doesNotRun = "does not run"

// pod returns a pod of the behaviour on the host's node with these requests, which writes what a
// command prints into the message of its end.
func (s *side) pod(command string, requests map[types.ResourceName]int64) *corev1.Pod {
	s.pods++
	pod := kube.NewPod(fmt.Sprintf("%s-%s-%d", s.name, s.row, s.pods), image.Busybox, "sh", "-c",
		"(\n"+prelude+command+"\n) >/dev/termination-log 2>&1")
	pod.Namespace = s.namespace
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Containers[0].Resources.Limits = limits(requests)
	return clustertest.On(s.node.Name, pod)
}

// some is a request for so many devices of the behaviour's resource.
func (s *side) some(count int64) map[types.ResourceName]int64 {
	return map[types.ResourceName]int64{s.resource: count}
}

func limits(requests map[types.ResourceName]int64) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, count := range requests {
		list[corev1.ResourceName(name)] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	return list
}

// run runs a pod to its end, and returns what it has printed, on one line.
func (s *side) run(pod *corev1.Pod, w waiting) (string, error) {
	created, err := shared.Client.CreatePod(s.ctx, pod)
	if err != nil {
		return "", err
	}
	return s.await(created, w, hasSucceeded)
}

func hasSucceeded(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded }

// await waits until is holds for a pod, and returns what its containers printed at their ends; or
// that it does not run, or is not scheduled.
func (s *side) await(pod *corev1.Pod, w waiting, is func(*corev1.Pod) bool) (string, error) {
	ctx, cancel := context.WithTimeout(s.ctx, podTimeout)
	defer cancel()
	failing := time.Time{}
	text := ""
	_, err := shared.Client.AwaitPod(ctx, pod, "to run", func(now *corev1.Pod) bool {
		switch {
		case w.unschedulable && isUnschedulable(now, w.because):
			text = "not scheduled"
			return true
		case is(now):
			text = printed(now)
			return true
		case now.Status.Phase == corev1.PodFailed:
			text = doesNotRun
			return true
		case failing.IsZero() && !w.patient && isRefused(now):
			failing = time.Now()
			time.AfterFunc(failureTimeout, cancel)
		}
		return false
	})
	if err != nil && !failing.IsZero() && s.ctx.Err() == nil {
		return doesNotRun, nil
	}
	return text, err
}

// isUnschedulable reports whether the scheduler has found no node for a pod, for a reason with a
// text in it.
func isUnschedulable(pod *corev1.Pod, because string) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse &&
			strings.Contains(c.Message, because)
	})
}

// isRefused reports whether a container of the pod could not be created.
func isRefused(pod *corev1.Pod) bool {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, status := range list {
			if waiting := status.State.Waiting; waiting != nil && strings.HasSuffix(waiting.Reason, "Error") {
				return true
			}
		}
	}
	return false
}

// printed is what the containers of a pod have printed, on one line.
func printed(pod *corev1.Pod) string {
	var lines []string
	for _, status := range pod.Status.ContainerStatuses {
		if ended := status.State.Terminated; ended != nil {
			lines = append(lines, strings.Split(strings.TrimSpace(ended.Message), "\n")...)
		}
	}
	return strings.Join(lines, "; ")
}

// idle runs a pod with one device that goes on, and returns it when it is ready.
func (s *side) idle() (*corev1.Pod, error) {
	pod := s.pod("", s.some(1))
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	pod.Spec.Containers[0].Command = clustertest.Idle
	return shared.Client.RunPod(s.ctx, pod)
}

// restart ends the container of a pod, and returns the variable DIFF of the next one, or that it
// does not run.
func (s *side) restart(pod *corev1.Pod) (string, error) {
	if pod == nil {
		return "", errors.New("no pod is idle")
	}
	before := pod.Status.ContainerStatuses[0].ContainerID
	if err := shared.Client.EndContainer(s.ctx, pod); err != nil {
		return "", err
	}
	got, err := s.await(pod, waiting{}, func(now *corev1.Pod) bool {
		return kube.Ready(now) && now.Status.ContainerStatuses[0].ContainerID != before
	})
	if err != nil || got != "" {
		return got, err
	}
	value, err := shared.Client.Exec(s.ctx, pod, "main", "sh", "-c", "echo $DIFF")
	return "runs with " + strings.TrimSpace(value), err
}

// bound creates a pod with one device on the node, without the scheduler, and returns what the
// admission of the kubelet says. At kubecri its container waits then: it has no allocation.
func (s *side) bound() (string, error) {
	pod := s.pod("", s.some(1))
	pod.Spec.NodeName = s.node.Name
	created, err := shared.Client.CreatePod(s.ctx, pod)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(s.ctx, podTimeout)
	defer cancel()
	now, err := shared.Client.AwaitPod(ctx, created, "to be admitted or to fail", func(now *corev1.Pod) bool {
		return now.Status.Phase != corev1.PodPending || isRefused(now)
	})
	switch {
	case err != nil:
		return "", err
	case now.Status.Phase == corev1.PodFailed && len(now.Status.ContainerStatuses) == 0:
		return "fails at admission", nil
	}
	return "is admitted", nil
}
