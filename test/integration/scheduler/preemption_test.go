// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/test/kube"
)

// priorityClass creates a priority class, which outlives the test, and waits until the API server
// accepts it: admission has it from an informer.
func (c *cluster) priorityClass(name string, value int32) string {
	c.Helper()
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
	if _, err := c.SchedulingV1().PriorityClasses().Create(c.Context(), class, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		c.Fatal(err)
	}
	probe := newPod("probe", 0)
	probe.Spec.PriorityClassName = name
	c.until("priority class "+name+" to be accepted", func(ctx context.Context) (bool, error) {
		_, err := c.CoreV1().Pods(probe.Namespace).Create(ctx, probe,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return !apierrors.IsForbidden(err), nil
	})
	return name
}

// A pod of high priority requires two GPUs that are joined closely. All GPUs are held, each by a
// pod of its own, and two of the three pairs by one that cannot be evicted.
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
	kube.SetRequests(pair, `"gpu/gpu-generate-topology":1`)
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

// What is short on the fullest nodes is known when the second of two pods comes that request the
// same, so that its cycle leaves them out. The pod fits nowhere else: its event is the same as the
// first's. For a third, of high priority, preemption makes sandbox on one of them.
func TestAPodThatFitsNowhereElseSeesFullNodesInItsEventAndMayPreemptThere(t *testing.T) {
	c := newCluster(t)
	high := c.priorityClass("high", 1000)
	startScheduler(t)
	port := []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 8080}}
	c.hold([]string{"l", "l", "."})
	taken := newPod("taken", 0)
	taken.Spec.PriorityClassName, taken.Spec.SchedulerName, taken.Spec.Containers[0].Ports = high, "other", port
	without := []*corev1.Pod{c.create(taken)} // devices
	c.bindBy(without[0], "n2", "")
	c.awaitKnown("n2")

	wanted := newPod("wanted", 1)
	wanted.Spec.Containers[0].Ports = port
	for _, name := range []string{"first", "second"} {
		wanted.Name = name
		pod := c.await(c.create(wanted), "to be found unschedulable", kube.Unschedulable)
		const want = "0/3 nodes are available: 1 node(s) didn't have free ports for the requested pod ports, 2 have " +
			"no free GPU."
		if got := whyUnscheduled(pod); !strings.HasPrefix(got, want) {
			t.Errorf("%s: message %q, want one that begins with %q", name, got, want)
		}
		without = append(without, pod)
	}
	wanted.Name, wanted.Spec.PriorityClassName = "third", high
	if node := c.schedule(wanted).Spec.NodeName; node != "n0" && node != "n1" {
		t.Errorf("it is on node %s, want one of those whose pod can be evicted", node)
	}
	for _, pod := range without {
		c.delete(pod)
	}
	c.check()
}

// guarded creates a disruption budget that allows no pod with this label to go.
func (c *cluster) guarded(label string) {
	c.Helper()
	budgets := c.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: label},
		Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{label: ""}},
		},
	}
	if _, err := budgets.Create(c.Context(), budget, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		if err := budgets.Delete(context.Background(), label, metav1.DeleteOptions{}); err != nil {
			c.Error(err)
		}
	})
}

// hold creates nodes, n0 and so on, whose GPUs are held as the letters of the table below say. It
// returns the names of the holders when the scheduler knows all that.
func (c *cluster) hold(nodes []string) []string {
	c.Helper()
	var names []string
	for n, letters := range nodes {
		node := fmt.Sprint("n", n)
		letters = strings.ReplaceAll(letters, " ", "")
		c.node(node, len(letters))
		for i, letter := range letters {
			if letter == '.' {
				continue
			}
			pod := newPod(fmt.Sprintf("%s-%d", node, i), 1)
			pod.Spec.SchedulerName = "other"
			switch letter {
			case 'm':
				pod.Spec.PriorityClassName = c.priorityClass("m", 100)
			case 'h':
				pod.Spec.PriorityClassName = c.priorityClass("h", 1000)
			case 'g':
				pod.Labels = map[string]string{"guarded": ""}
			}
			c.bindBy(c.create(pod), node, allocated(pod.Name, node, i))
			names = append(names, pod.Name)
		}
		c.awaitKnown(node)
	}
	return names
}

// A pod of priority 1000 wants two GPUs of one pair. What each node's GPUs are held by is written
// one letter a GPU, two GPUs a pair: l and m are pods of priority 0 and 100, g one of priority 0
// that a budget guards, h one of priority 1000.
func TestPreemptionEvictsTheCheapestPodsThatHelp(t *testing.T) {
	startSchedulerWith(t, []string{"--device-topology=require"})
	for name, test := range map[string]struct {
		nodes     []string
		evicted   []string
		allocated string // "" when the pod must wait
	}{
		"the pair whose holders matter least": {
			[]string{"ml ll"}, []string{"n0-2", "n0-3"}, "n0-gpu-2 n0-gpu-3",
		},
		"two of little priority before one of more": {
			[]string{"m. ll"}, []string{"n0-2", "n0-3"}, "n0-gpu-2 n0-gpu-3",
		},
		"the pair that no budget guards": {
			[]string{"gl ll"}, []string{"n0-2", "n0-3"}, "n0-gpu-2 n0-gpu-3",
		},
		"more priority before a budget": {
			[]string{"gl mm"}, []string{"n0-2", "n0-3"}, "n0-gpu-2 n0-gpu-3",
		},
		"the node that no budget guards": {
			[]string{"gg gg", "mm hh"}, []string{"n1-0", "n1-1"}, "n1-gpu-0 n1-gpu-1",
		},
		"a guarded pair when there is no other": {
			[]string{"gg hh"}, []string{"n0-0", "n0-1"}, "n0-gpu-0 n0-gpu-1",
		},
		"only what makes a pair, with what is free": {
			[]string{"lh .l lh"}, []string{"n0-3"}, "n0-gpu-2 n0-gpu-3",
		},
		"only on the node where it helps": {
			[]string{"lh lh", "hl ll"}, []string{"n1-2", "n1-3"}, "n1-gpu-2 n1-gpu-3",
		},
		"none, for no pair can be had":                  {[]string{"lh hl", "h. .h"}, nil, ""},
		"none, for there is a pair that is free anyway": {[]string{"ll ll", "hh .."}, nil, "n1-gpu-2 n1-gpu-3"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.guarded("guarded")
			before := c.hold(test.nodes)
			wanted := newPod("wanted", 2)
			wanted.Spec.PriorityClassName = c.priorityClass("h", 1000)
			pod := c.create(wanted)
			if test.allocated == "" {
				c.awaitNoVictims(pod)
			} else {
				pod = c.await(pod, "to be bound", kube.Scheduled)
				if got := devices(pod); got != test.allocated {
					t.Errorf("allocated %s, want %s", got, test.allocated)
				}
			}
			var evicted []string
			after := c.pods()
			for _, name := range before {
				if !slices.ContainsFunc(after, func(pod corev1.Pod) bool { return pod.Name == name }) {
					evicted = append(evicted, name)
				}
			}
			if diff := cmp.Diff(test.evicted, evicted); diff != "" {
				t.Errorf("evicted pods (-want +got):\n%s", diff)
			}
			c.check()
		})
	}
}

// awaitNoVictims waits until a pod is unschedulable, and no pod will be evicted for it: victims
// go later, but their node is nominated at once.
func (c *cluster) awaitNoVictims(pod *corev1.Pod) {
	c.Helper()
	pod = c.await(pod, "to be found unschedulable", kube.Unschedulable)
	if node := pod.Status.NominatedNodeName; node != "" {
		c.Errorf("pods of node %s are evicted for pod %s", node, pod.Name)
	}
}

// Evicting all pods would not help: no pod is evicted.
func TestNoPodIsEvictedForWhatTheNodeDoesNotHave(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 2)
	higher := c.priorityClass("higher", 2000)
	startScheduler(t)
	held := c.schedule(newPod("low", 1))
	greedy := newPod("greedy", 3)
	greedy.Spec.PriorityClassName = higher
	c.awaitNoVictims(c.create(greedy))
	c.await(held, "to be there still", func(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil })
}

// No pair is free: a pod that counts two GPUs gets the two single ones, one that requires a pair
// waits.
func TestAPodThatCountsStartsWhereNoPairIsFree(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 4)
	startScheduler(t)
	for i := range 2 {
		pod := newPod(fmt.Sprintf("holder-%d", i), 1)
		pod.Spec.SchedulerName = "other"
		c.bindBy(c.create(pod), "n1", allocated(pod.Name, "n1", 2*i))
	}
	pair := newPod("pair", 2)
	kube.SetRequests(pair, `"gpu/gpu-generate-topology":1`)
	c.await(c.create(pair), "to be found unschedulable", kube.Unschedulable)
	if got, want := devices(c.schedule(newPod("any", 2))), "n1-gpu-1 n1-gpu-3"; got != want {
		t.Errorf("devices %s, want %s", got, want)
	}
	c.check()
}
