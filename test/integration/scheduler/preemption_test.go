// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/test/kube"
)

// priorityClass creates a priority class.
func (c *cluster) priorityClass(name string, value int32) string {
	c.Helper()
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
	if _, err := c.SchedulingV1().PriorityClasses().Create(c.Context(), class, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	return name
}

// A pod of high priority needs two GPUs that are joined closely. All GPUs are held, each by a pod of its own, and two of
// the three pairs by one that cannot be evicted.
func TestPreemptionFreesTheDevicesThatMakeAPair(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 6)
	high := c.priorityClass("high", 1000)
	startScheduler(t)
	for i, class := range []string{high, "", "", "", "", high} {
		pod := newPod(fmt.Sprintf("holder-%d", i), 1)
		pod.Spec.SchedulerName, pod.Spec.PriorityClassName = "other", class
		c.bindBy(c.create(pod), "n1", allocated(pod.Name, "n1", i))
	}

	pair := newPod("pair", 2)
	pair.Spec.PriorityClassName = high
	if got, want := devices(c.schedule(pair)), "n1-gpu-2 n1-gpu-3"; got != want {
		t.Errorf("devices %s, want %s", got, want)
	}
	var left []string
	for _, pod := range c.pods() {
		left = append(left, pod.Name)
	}
	slices.Sort(left)
	if diff := cmp.Diff([]string{"holder-0", "holder-1", "holder-4", "holder-5", "pair"}, left); diff != "" {
		t.Errorf("pods that are left (-want +got):\n%s", diff)
	}
	c.check()
}

// Evicting everybody would not help: nobody is evicted.
func TestNobodyIsEvictedForWhatTheNodeDoesNotHave(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 2)
	higher := c.priorityClass("higher", 2000)
	startScheduler(t)
	held := c.schedule(newPod("low", 1))
	greedy := newPod("greedy", 3)
	greedy.Spec.PriorityClassName = higher
	c.await(c.create(greedy), "to be found unschedulable", kube.Unschedulable)
	c.await(held, "to be there still", func(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil })
}
