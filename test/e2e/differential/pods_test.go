// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"fmt"
	"regexp"
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
	podTimeout = 60 * time.Second // to end, or to be ready
	// failureTimeout is how long a container must fail to be created to count as one that does not
	// run: both hosts try again.
	failureTimeout = 15 * time.Second
)

// doesNotRun is the outcome of a pod whose container is not created.
const doesNotRun = "does not run"

// pod returns a pod of the row on the host's node that requests so many devices of each resource,
// and writes what a command prints into the message of its end.
func (s *side) pod(command string, requests map[types.ResourceName]int64) *corev1.Pod {
	s.mu.Lock()
	s.pods++
	name := fmt.Sprintf("%s-%s-%d", s.name, s.row, s.pods)
	s.mu.Unlock()
	pod := kube.NewPod(name, image.Busybox, "sh", "-c",
		"(\n"+prelude+command+"\n) >/dev/termination-log 2>&1")
	pod.Namespace = s.namespace
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	limits := corev1.ResourceList{}
	for name, count := range requests {
		limits[corev1.ResourceName(name)] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	pod.Spec.Containers[0].Resources.Limits = limits
	return clustertest.On(s.node.Name, pod)
}

// one is a request for one device of the row's resource.
func (s *side) one() map[types.ResourceName]int64 { return s.some(1) }

// some is a request for so many of them.
func (s *side) some(count int64) map[types.ResourceName]int64 {
	return map[types.ResourceName]int64{s.resource: count}
}

// probe runs a pod with one device, and returns what its command prints.
func (s *side) probe(command string) string { return s.run(s.pod(command, s.one())) }

// run runs a pod to its end, and returns what it has printed, on one line.
func (s *side) run(pod *corev1.Pod) string {
	return s.await(s.create(pod), func(now *corev1.Pod) bool { return now.Status.Phase == corev1.PodSucceeded })
}

// create creates a pod.
func (s *side) create(pod *corev1.Pod) *corev1.Pod {
	created, err := shared.Client.CreatePod(s.ctx, pod)
	if err != nil {
		panic(outcome(err.Error()))
	}
	return created
}

// await waits until is holds for a pod, and returns what its container printed at its end; or that
// it does not run.
func (s *side) await(pod *corev1.Pod, is func(*corev1.Pod) bool) string {
	ctx, cancel := context.WithTimeout(s.ctx, podTimeout)
	defer cancel()
	failing := time.Time{}
	text := ""
	_, err := shared.Client.AwaitPod(ctx, pod, "to run", func(now *corev1.Pod) bool {
		switch {
		case is(now):
			text = printed(now)
			return true
		case now.Status.Phase == corev1.PodFailed:
			text = doesNotRun
			return true
		case failing.IsZero() && isRefused(now):
			failing = time.Now()
			time.AfterFunc(failureTimeout, cancel)
		}
		return false
	})
	switch {
	case err == nil:
		return text
	case !failing.IsZero():
		return doesNotRun
	default:
		return "pending: " + pendingReason(err.Error())
	}
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

var insufficient = regexp.MustCompile(`Insufficient|too few|at most \d+ bytes|more than \d+ bytes`)

// pendingReason is the part of what is said of a pending pod that counts.
func pendingReason(text string) string {
	if found := insufficient.FindString(text); found != "" {
		return "not schedulable"
	}
	return text
}

// idle runs a pod with one device that goes on, and returns it when it is ready.
func (s *side) idle() *corev1.Pod {
	pod := s.pod("", s.one())
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	pod.Spec.Containers[0].Command = clustertest.Idle
	ready := s.create(pod)
	if got := s.await(ready, func(now *corev1.Pod) bool {
		if kube.Ready(now) {
			ready = now
		}
		return kube.Ready(now)
	}); got != "" {
		panic(outcome("a pod that goes on " + got))
	}
	return ready
}

// restart ends the container of a pod, and returns the variable DIFF of the next one, or that it
// does not run.
func (s *side) restart(pod *corev1.Pod) string {
	before := pod.Status.ContainerStatuses[0].ContainerID
	if err := shared.Client.EndContainer(s.ctx, pod); err != nil {
		panic(outcome(err.Error()))
	}
	if got := s.await(pod, func(now *corev1.Pod) bool {
		return kube.Ready(now) && now.Status.ContainerStatuses[0].ContainerID != before
	}); got != "" {
		return doesNotRun
	}
	value, err := shared.Client.Exec(s.ctx, pod, "main", "sh", "-c", "echo $DIFF")
	if err != nil {
		return err.Error()
	}
	return "runs with " + strings.TrimSpace(value)
}
