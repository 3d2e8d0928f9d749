// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/kube"
)

// bindBy binds a pod as another scheduler does.
func (c *cluster) bindBy(pod *corev1.Pod, nodeName, annotation string) {
	c.Helper()
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID},
		Target: corev1.ObjectReference{Kind: "Node", Name: nodeName}}
	if annotation != "" {
		binding.Annotations = map[string]string{deviceinfo.Annotation: annotation}
	}
	if err := c.CoreV1().Pods(pod.Namespace).Bind(c.Context(), binding, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

// Another scheduler binds pods to our node: without an allocation, and with one.
func TestPodsOfAnotherSchedulerHoldWhatTheirAllocationSays(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 2)
	foreign := func(name string) *corev1.Pod {
		pod := newPod(name, 0)
		pod.Spec.SchedulerName = "other"
		return c.create(pod)
	}
	c.bindBy(foreign("without"), "n1", "")
	c.bindBy(foreign("with"), "n1", allocated("with", "n1", 1))
	startScheduler(t)
	if got, want := devices(c.schedule(newPod("p", 1))), "n1-gpu-0"; got != want {
		t.Errorf("devices %s, want %s", got, want)
	}
	c.await(c.create(newPod("q", 1)), "to be found unschedulable", kube.Unschedulable)
}

// A node is deleted and made again while its pods live on, as when a kubelet registers again. The
// second pod requests a label that only the new node has: so it is scheduled when the scheduler has
// seen the new one, and not earlier.
func TestANodeThatIsMadeAgainStillHasItsHolders(t *testing.T) {
	c := newCluster(t)
	c.node("cpu", 0)
	c.node("n1", 2)
	startScheduler(t)
	first := c.schedule(newPod("p", 1))
	if err := c.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := newPod("q", 1)
	pod.Spec.NodeSelector = map[string]string{"made": "again"}
	pending := c.await(c.create(pod), "to be found unschedulable", kube.Unschedulable)
	c.node("n1", 2)
	label := []byte(`{"metadata":{"labels":{"made":"again"}}}`)
	if _, err := c.CoreV1().Nodes().Patch(t.Context(), "n1", types.MergePatchType, label,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	second := c.await(pending, "to be bound", kube.Scheduled)
	if devices(first) == devices(second) {
		t.Errorf("both pods have %s", devices(first))
	}
}

// Two profiles of one scheduler share what is known.
func TestTwoProfilesGiveNoDeviceTwice(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 4)
	startScheduler(t, `
profiles:
- schedulerName: default-scheduler
- schedulerName: second
  plugins:
    score: {disabled: [{name: '*'}]}
`)
	for i, name := range []string{"a", "b", "c", "d"} {
		pod := newPod(name, 1)
		if i%2 == 1 {
			pod.Spec.SchedulerName = "second"
		}
		c.schedule(pod)
	}
	if got := c.check(); got != 4 {
		t.Errorf("%d pods are bound, want 4", got)
	}
}

// Allocations that are written on pods without the scheduler: on a pod that names its node itself,
// and copied from a pod that is gone, with its name and all.
func TestPodsThatCameWithoutASchedulerHoldWhatTheirAllocationSays(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 4)
	named := func(name string, number int) *corev1.Pod {
		pod := newPod(name, 0)
		pod.Spec.NodeName = "n1"
		if number >= 0 {
			pod.Annotations = map[string]string{deviceinfo.Annotation: allocated(name, "n1", number)}
		}
		return c.create(pod)
	}
	named("bare", -1)
	named("valid", 3)
	startScheduler(t)
	first := c.schedule(newPod("first", 1))
	copied := first.Annotations[deviceinfo.Annotation]
	c.delete(first)

	replayed := newPod("first", 1)
	replayed.Annotations = map[string]string{deviceinfo.Annotation: copied}
	c.schedule(replayed)
	other := newPod("other", 1)
	other.Annotations = map[string]string{deviceinfo.Annotation: copied}
	c.schedule(other)
	c.schedule(newPod("last", 1))
	c.await(c.create(newPod("too-many", 1)), "to be found unschedulable", kube.Unschedulable)
	var held []string
	for _, pod := range c.pods() {
		if pod.Name != "bare" && kube.Scheduled(&pod) {
			held = append(held, devices(&pod))
		}
	}
	slices.Sort(held)
	if diff := cmp.Diff([]string{"n1-gpu-0", "n1-gpu-1", "n1-gpu-2", "n1-gpu-3"}, held); diff != "" {
		t.Errorf("GPUs that are held (-want +got):\n%s", diff)
	}
}

// A pod that has ended holds nothing. One that is being deleted holds its devices until it is gone,
// also for a scheduler that starts meanwhile.
func TestATerminatingPodHoldsItsDevicesAndOneThatHasEndedDoesNot(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 2)
	scheduler := startScheduler(t)
	terminating := newPod("terminating", 1)
	terminating.Spec.TerminationGracePeriodSeconds = ptr.To[int64](3600)
	terminating = c.schedule(terminating)
	ended := c.schedule(newPod("ended", 1))
	if err := c.CoreV1().Pods(terminating.Namespace).Delete(t.Context(), terminating.Name,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ended.Status.Phase = corev1.PodSucceeded
	if _, err := c.CoreV1().Pods(ended.Namespace).UpdateStatus(t.Context(), ended, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	scheduler.kill()
	startScheduler(t)
	if got, want := devices(c.schedule(newPod("next", 1))), devices(ended); got != want {
		t.Errorf("allocated %s, want %s, whose holder has ended", got, want)
	}
	last := c.await(c.create(newPod("last", 1)), "to be found unschedulable", kube.Unschedulable)
	if err := c.CoreV1().Pods(terminating.Namespace).Delete(t.Context(), terminating.Name, atOnce); err != nil {
		t.Fatal(err)
	}
	if got, want := devices(c.await(last, "to be bound", kube.Scheduled)), devices(terminating); got != want {
		t.Errorf("allocated %s, want %s, whose holder is gone", got, want)
	}
}
