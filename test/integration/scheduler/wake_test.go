// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/test/kube"
)

// attempts returns how often the scheduler has found no node for a pod.
func (r reader) attempts() int {
	r.Helper()
	_, text := r.get("/metrics")
	total := 0
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "scheduler_schedule_attempts_total{") &&
			strings.Contains(line, `result="unschedulable"`) {
			fields := strings.Fields(line)
			n, err := strconv.Atoi(fields[len(fields)-1])
			if err != nil {
				r.Fatal(err)
			}
			total += n
		}
	}
	return total
}

// 100 pods wait for two GPUs of one group. Nodes change in ways that do not help them, and a pod
// with one GPU goes: no pod is tried again. Then a pair comes free, and one of them has it at once.
func TestPodsThatWaitAreTriedAgainForWhatHelpsThem(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 4)
	var holders []*corev1.Pod
	for number := range 4 {
		pod := newPod(fmt.Sprint("holder-", number), 0)
		pod.Spec.SchedulerName = "other"
		pod = c.create(pod)
		c.bindBy(pod, "n1", allocated(pod.Name, "n1", number))
		holders = append(holders, pod)
	}
	port := freePort(t)
	startSchedulerWith(t, []string{fmt.Sprintf("--secure-port=%d", port), "--bind-address=127.0.0.1"})
	metrics := newReader(t, port, "admin", "system:masters")

	pair := func(name string) *corev1.Pod {
		pod := newPod(name, 0)
		kube.SetRequests(pod, `"gpugrp0/A/gpu/a/cards":1,"gpugrp0/A/gpu/b/cards":1`)
		return c.create(pod)
	}
	var waiting []*corev1.Pod
	for i := range 100 {
		waiting = append(waiting, pair(fmt.Sprint("waiting-", i)))
	}
	for _, pod := range waiting {
		c.await(pod, "to be found unschedulable", kube.Unschedulable)
	}

	before := metrics.attempts()
	for i := range 10 {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"theirs":"%d"},"labels":{"theirs":"%d"}}}`, i, i)
		if _, err := c.CoreV1().Nodes().Patch(t.Context(), "n1", types.MergePatchType, patch,
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.delete(holders[0]) // its neighbour is still held
	last := newPod("last", 1)
	last.Spec.NodeSelector = map[string]string{"theirs": "9"} // bound when the scheduler has seen all that
	last = c.schedule(last)
	switch again := metrics.attempts() - before; again {
	case 0:
	case 1: // the last pod, before its node's label was seen
		c.awaitFailure(last, "")
	default:
		t.Errorf("pods were tried again %d times, without any hope", again)
	}

	c.delete(holders[2])
	c.delete(holders[3])
	bound := func(pod corev1.Pod) bool { return pod.Spec.NodeName != "" && strings.HasPrefix(pod.Name, "waiting-") }
	c.until("a pod to have the pair that is free", func(context.Context) (bool, error) {
		return slices.ContainsFunc(c.pods(), bound), nil
	})
}
