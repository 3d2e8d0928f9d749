// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/test/kube"
)

// annotatedPod returns a pod that requests one GPU in its annotation, so that only this scheduler
// counts it.
func annotatedPod(name string) *corev1.Pod {
	pod := newPod(name, 0)
	kube.SetRequests(pod, `"gpu/a/cards":1`)
	return pod
}

// republish replaces a node's inventory by one of these GPUs, or takes it away, with the count of
// GPUs, when there are none. It waits until the scheduler has seen that.
func (c *cluster) republish(node string, list ...gpu.GPU) {
	c.Helper()
	if len(list) == 0 {
		status := []byte(`{"status":{"capacity":{"nvidia.com/gpu":null},"allocatable":{"nvidia.com/gpu":null}}}`)
		if _, err := c.CoreV1().Nodes().Patch(c.Context(), node, kubetypes.MergePatchType, status,
			metav1.PatchOptions{}, "status"); err != nil {
			c.Fatal(err)
		}
		c.annotate(node, nil)
		return
	}
	info := types.NewNodeInfoWithName(node)
	gpu.Publish(info, gpu.Resource, list)
	annotation, err := deviceinfo.EncodeNode(info)
	if err != nil {
		c.Fatal(err)
	}
	c.annotate(node, annotation)
}

// annotate sets a node's annotation, or takes it away when it is nil, and waits until the scheduler
// has seen that.
func (c *cluster) annotate(node string, annotation any) {
	c.Helper()
	c.patch(node, map[string]any{"annotations": map[string]any{deviceinfo.Annotation: annotation}})
	c.awaitKnown(node)
}

// Three of a node's four GPUs go while pods hold all of them. Who holds what is not forgotten: a
// GPU is allocated again when its holder is gone and it is there, and not before.
func TestAnInventoryMayShrinkBelowWhatIsUsedAndComeBack(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 4)
	startScheduler(t)
	holders := map[string]*corev1.Pod{}
	for i := range 4 {
		pod := c.schedule(annotatedPod(fmt.Sprint("holder-", i)))
		holders[devices(pod)] = pod
	}
	c.republish("n1", listed("n1", 1)...)
	c.delete(holders["n1-gpu-3"]) // it is not there
	next := c.await(c.create(annotatedPod("next")), "to be found unschedulable", kube.Unschedulable)
	c.delete(holders["n1-gpu-0"])
	if got, want := devices(c.await(next, "to be bound", kube.Scheduled)), "n1-gpu-0"; got != want {
		t.Errorf("allocated %s, want %s, the only one that is there", got, want)
	}

	last := c.await(c.create(annotatedPod("last")), "to be found unschedulable", kube.Unschedulable)
	c.republish("n1", listed("n1", 4)...)
	if got, want := devices(c.await(last, "to be bound", kube.Scheduled)), "n1-gpu-3"; got != want {
		t.Errorf("allocated %s, want %s, the only free one", got, want)
	}
}

// As when kubecri is taken away and put back.
func TestAnInventoryThatIsDeletedAndBackStillHasItsHolders(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 2)
	startScheduler(t)
	first := c.schedule(annotatedPod("first"))
	c.republish("n1")
	second := c.await(c.create(annotatedPod("second")), "to be found unschedulable", kube.Unschedulable)
	c.republish("n1", listed("n1", 2)...)
	second = c.await(second, "to be bound", kube.Scheduled)
	if devices(first) == devices(second) {
		t.Errorf("both pods have %s", devices(first))
	}
	c.await(c.create(annotatedPod("third")), "to be found unschedulable", kube.Unschedulable)
}

// A node comes back under another name, with the same GPUs. Pods of the old name hold nothing of
// the new one, also when their allocation is copied.
func TestANodeThatIsRenamedIsAnotherNode(t *testing.T) {
	c := newCluster(t)
	gpus := listed("machine", 2)
	c.nodeOf("old", gpus...)
	startScheduler(t)
	before := c.schedule(annotatedPod("before"))
	if err := c.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.nodeOf("new", gpus...)
	c.awaitKnown("new")
	replayed := newPod("replayed", 0)
	replayed.Spec.SchedulerName = "other"
	c.bindBy(c.create(replayed), "new", before.Annotations[deviceinfo.Annotation])
	for _, name := range []string{"one", "two"} {
		if pod := c.schedule(annotatedPod(name)); pod.Spec.NodeName != "new" {
			t.Errorf("pod %s is bound to %s", name, pod.Spec.NodeName)
		}
	}
	c.await(c.create(annotatedPod("three")), "to be found unschedulable", kube.Unschedulable)
}

// During a rolling upgrade one node's plugin knows the topology, and the other's does not yet: it
// publishes bare GPUs.
func TestNodesOfTwoPluginVersionsAreUsedSideBySide(t *testing.T) {
	c := newCluster(t)
	bare := listed("bare", 2)
	for i := range bare {
		bare[i].Groups = nil
	}
	c.nodeOf("bare", bare...)
	c.node("full", 2)
	startScheduler(t)
	for _, name := range []string{"a", "b", "c", "d"} {
		c.schedule(newPod(name, 1))
	}
	if got := c.check(); got != 4 {
		t.Errorf("%d pods are bound, want 4", got)
	}
}
