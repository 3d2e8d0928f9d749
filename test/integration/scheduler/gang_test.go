// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/test/kube"
)

// gangGate makes a scheduler place the pods of a pod group together. The API server has it on for
// all tests.
const gangGate = "--feature-gates=GenericWorkload=true"

// podGroup creates a pod group whose pods run together or not at all. It goes with the test.
func (c *cluster) podGroup(name string, size int32) {
	c.Helper()
	c.podGroupOf(name, "", size)
}

// podGroupOf is podGroup for a group of a priority class.
func (c *cluster) podGroupOf(name, class string, size int32) {
	c.Helper()
	groups := c.SchedulingV1beta1().PodGroups(metav1.NamespaceDefault)
	group := &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: schedulingv1beta1.PodGroupSpec{
			PriorityClassName: class,
			SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{
				Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: size},
			},
		},
	}
	if _, err := groups.Create(c.Context(), group, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

// createGang creates the pods of a group.
func (c *cluster) createGang(group string, size int32, gpus int64) []*corev1.Pod {
	c.Helper()
	return c.createGangOf(group, "", size, gpus)
}

// createGangOf is createGang for a group of a priority class.
func (c *cluster) createGangOf(group, class string, size int32, gpus int64) []*corev1.Pod {
	c.Helper()
	pods := make([]*corev1.Pod, size)
	for i := range pods {
		pod := newPod(fmt.Sprintf("%s-%d", group, i), gpus)
		pod.Spec.PriorityClassName = class
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To(group)}
		pods[i] = c.create(pod)
	}
	return pods
}

// All pods of a group get their devices in one cycle, from one snapshot that shows none of them.
func TestThePodsOfAGroupThatShareANodeHaveDifferentDevices(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 8)
	startSchedulerWith(t, []string{gangGate})
	for _, group := range []string{"first", "second"} {
		c.podGroup(group, 4)
		for _, pod := range c.createGang(group, 4, 1) {
			c.await(pod, "to be bound", kube.Scheduled)
		}
	}
	if got := c.check(); got != 8 {
		t.Errorf("%d pods are bound, want 8", got)
	}
}

// Three pods of two GPUs each belong together, and there is sandbox for two of them. Again and
// again that is found out by placing them one after another, and none of it leaves a trace: a pod
// that wants all GPUs of the node has them.
func TestAGroupOfDevicePodsIsPlacedWhenAllOfItFits(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 4)
	startSchedulerWith(t, []string{gangGate})
	c.podGroup("gang", 3)
	gang := c.createGang("gang", 3, 2)
	for _, pod := range gang {
		c.await(pod, "to be found unschedulable", kube.Unschedulable)
	}
	c.delete(c.schedule(newPod("greedy", 4))) // and the group is tried again
	c.schedule(newPod("again", 4))
	if got := c.check(); got != 1 {
		t.Fatalf("%d pods are bound, want the one that is no part of the group", got)
	}

	c.node("n2", 6)
	for _, pod := range gang {
		c.await(pod, "to be bound", kube.Scheduled)
	}
	if got := c.check(); got != 4 {
		t.Errorf("%d pods are bound, want 4", got)
	}
}

// Two pods of two GPUs each belong together. The table of preemption says what the letters mean.
func TestAGroupEvictsPodsUntilAllOfItFits(t *testing.T) {
	startSchedulerWith(t, []string{gangGate})
	for name, test := range map[string]struct {
		nodes   []string
		evicted int
	}{
		"two pairs of three":              {[]string{"ll ll ll"}, 4},
		"a pair on each of two nodes":     {[]string{"hh ll", "hh ll"}, 4},
		"one pair, for there is one free": {[]string{"hh ll .."}, 2},
		"none, for one pair is too few":   {[]string{"hh ll hh"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			before := c.hold(test.nodes)
			group := fmt.Sprintf("preemptors-%d-%d", test.evicted, len(test.nodes))
			c.podGroupOf(group, c.priorityClass("h", 1000), 2)
			for _, pod := range c.createGangOf(group, "h", 2, 2) {
				if test.evicted == 0 {
					c.awaitNoVictims(pod)
				} else {
					c.await(pod, "to be bound", kube.Scheduled)
				}
			}
			if got, want := len(c.pods()), len(before)-test.evicted+2; got != want {
				t.Errorf("%d pods are left, want %d: %d are evicted, and there are two more", got, want, test.evicted)
			}
			c.check()
		})
	}
}

// A scheduler without the gate places pods one by one, also those of a group.
func TestWithoutTheGateAGroupIsManyPods(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 4)
	startScheduler(t)
	c.podGroup("loose", 3)
	c.createGang("loose", 3, 2)
	c.awaitBound(2)
}
