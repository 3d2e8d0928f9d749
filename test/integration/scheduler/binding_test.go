// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/kube"
)

func TestAPodWithLimitsAloneGetsNodeAndDevicesInOneWrite(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 4)
	startScheduler(t)
	pod := c.create(newPod("p", 2))
	watch, err := c.CoreV1().Pods(pod.Namespace).Watch(t.Context(), metav1.ListOptions{
		FieldSelector: "metadata.name=" + pod.Name, ResourceVersion: pod.ResourceVersion,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	for event := range watch.ResultChan() {
		current := event.Object.(*corev1.Pod)
		_, hasDevices := current.Annotations[deviceinfo.Annotation]
		if hasNode := current.Spec.NodeName != ""; hasNode != hasDevices {
			t.Fatalf("the pod is seen with node %q and annotations %q", current.Spec.NodeName, current.Annotations)
		}
		if hasDevices {
			pod = current
			break
		}
	}
	if got, want := devices(pod), "n1-gpu-2 n1-gpu-3"; got != want {
		t.Errorf("devices %s, want the pair %s", got, want)
	}
}

func TestAForgedAllocationIsOverwritten(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 2)
	startScheduler(t)
	for i, test := range []struct {
		what string
		gpus int64
		want string
	}{
		{"with a request", 1, "n1-gpu-1"},
		{"without a request", 0, ""},
		{"with a request, again", 1, "n1-gpu-0"},
	} {
		pod := newPod(fmt.Sprintf("forger-%d", i), test.gpus)
		pod.Annotations = map[string]string{deviceinfo.Annotation: allocated(pod.Name, "n1", 0)}
		if got := devices(c.schedule(pod)); got != test.want {
			t.Errorf("%s: devices %q, want %q", test.what, got, test.want)
		}
	}
}

func TestPlainPodsAreScheduledAsByUpstream(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 0)
	startScheduler(t)
	pod := c.schedule(newPod("plain", 0))
	if value, ok := pod.Annotations[deviceinfo.Annotation]; ok {
		t.Errorf("the pod has the annotation %s", value)
	}
}

// whyUnscheduled returns what the scheduler says of a pod that it finds no node for.
func whyUnscheduled(pod *corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled {
			return condition.Message
		}
	}
	return ""
}

func TestAPodThatDoesNotFitSaysWhyAndIsBoundWhenADeviceComes(t *testing.T) {
	c := newCluster(t)
	c.node("cpu", 0)
	c.node("small", 2)
	startScheduler(t)
	wanted := newPod("p", 0)
	kube.SetRequests(wanted, `"gpugrp0/A/gpu/a/cards":1,"gpugrp0/A/gpu/b/cards":1`)
	first := c.schedule(wanted)
	if got, want := devices(first), "small-gpu-0 small-gpu-1"; got != want {
		t.Errorf("devices %q, want %q", got, want)
	}
	wanted.Name = "q"
	pod := c.await(c.create(wanted), "to be found unschedulable", kube.Unschedulable)
	const want = "0/2 nodes are available: 1 have fewer than 2 free GPUs (best: 0 free of 2), 1 have no GPU."
	if got := whyUnscheduled(pod); !strings.HasPrefix(got, want) {
		t.Errorf("message %q, want one that begins with %q", got, want)
	}
	c.delete(first)
	if got, want := devices(c.await(pod, "to be bound", kube.Scheduled)), "small-gpu-0 small-gpu-1"; got != want {
		t.Errorf("devices %q, want %q", got, want)
	}
}

// Three nodes have the same shortage, each with other numbers; the fourth has another.
func TestAnEventGroupsNodesByWhatTheyLack(t *testing.T) {
	c := newCluster(t)
	for name, held := range map[string][]int{"n1": {0, 2}, "n2": {1, 2, 5}, "n3": {0, 1, 3}, "n4": {1}} {
		gpus := map[string]int{"n1": 4, "n2": 6, "n3": 4, "n4": 2}[name]
		c.node(name, gpus)
		for _, number := range held {
			pod := newPod(fmt.Sprintf("%s-%d", name, number), 0)
			pod.Spec.SchedulerName = "other"
			c.bindBy(c.create(pod), name, allocated(pod.Name, name, number))
		}
	}
	startScheduler(t)
	wanted := newPod("p", 0)
	kube.SetRequests(wanted, `"gpugrp0/A/gpu/a/cards":1,"gpugrp0/A/gpu/b/cards":1`)
	c.refusal(c.create(wanted), "0/4 nodes are available: 2 have fewer than 2 free GPUs (best: 1 free of 4), "+
		"2 have fewer than 2 free GPUs in one NVLink or PCIe group (best: 1 free of 2).")
}
