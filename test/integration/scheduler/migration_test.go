// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/test/kube"
)

// count sets how many of an extended resource a node's status has, as its kubelet does.
func (c *cluster) count(node string, counts map[corev1.ResourceName]int64) {
	c.Helper()
	c.change(node, func(of *corev1.Node) { setCounts(of, counts) })
}

func setCounts(node *corev1.Node, counts map[corev1.ResourceName]int64) {
	node.Status.Allocatable = node.Status.Capacity.DeepCopy()
	for name, count := range counts {
		node.Status.Capacity[name] = *resource.NewQuantity(count, resource.DecimalSI)
		node.Status.Allocatable[name] = node.Status.Capacity[name]
	}
}

// change changes a node's annotations and status in one write, as a node does it.
func (c *cluster) change(node string, change func(*corev1.Node)) {
	c.Helper()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		found, err := c.CoreV1().Nodes().Get(c.Context(), node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(found)
		_, err = c.CoreV1().Nodes().UpdateStatus(c.Context(), found, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		c.Fatal(err)
	}
}

// kubeletsNode creates a node whose kubelet counts this many GPUs: nothing of it is ours.
func (c *cluster) kubeletsNode(name string, gpus int64) {
	c.Helper()
	c.publish(types.NewNodeInfoWithName(name))
	c.count(name, map[corev1.ResourceName]int64{corev1.ResourceName(gpu.Resource): gpus})
}

// byNode returns how many pods are bound to each node, and fails for one that has no allocation on
// a node of ours, has one on a node of a kubelet's, or shares a device.
func (c *cluster) byNode(ours map[string]bool) map[string]int {
	c.Helper()
	bound, holders := map[string]int{}, map[string]string{}
	for _, pod := range c.pods() {
		node := pod.Spec.NodeName
		if node == "" {
			continue
		}
		bound[node]++
		annotation, annotated := pod.Annotations[deviceinfo.Annotation]
		if annotated != ours[node] {
			c.Errorf("pod %s on node %s has the annotation %q", pod.Name, node, annotation)
		}
		if id := devices(&pod); ours[node] {
			if holders[node+id] != "" || id == "" {
				c.Errorf("pods %q and %s have device %q of node %s", holders[node+id], pod.Name, id, node)
			}
			holders[node+id] = pod.Name
		}
	}
	return bound
}

func TestAHalfMigratedClusterServesPodsOnBothKindsOfNodes(t *testing.T) {
	const gpus = 16 // on each node: so many pods do not all go to one of two by chance
	c := newCluster(t)
	c.node("ours", gpus)
	c.kubeletsNode("kubelets", gpus)
	startScheduler(t)
	var last *corev1.Pod
	for i := range gpus {
		last = c.schedule(newPod(fmt.Sprint("p", i), 1))
	}
	ours := map[string]bool{"ours": true}
	if bound := c.byNode(ours); bound["ours"] == 0 || bound["kubelets"] == 0 {
		t.Errorf("pods by node: %v, and one kind of nodes is filled first", bound)
	}
	for i := range gpus {
		c.schedule(newPod(fmt.Sprint("more", i), 1))
	}
	if bound := c.byNode(ours); bound["ours"] != gpus || bound["kubelets"] != gpus {
		t.Errorf("pods by node: %v, want all devices of both", bound)
	}
	late := c.await(c.create(newPod("late", 1)), "to be found unschedulable", kube.Unschedulable)
	c.delete(last)
	c.await(late, "to be bound to what the deleted pod had", kube.Scheduled)
	c.byNode(ours)
}

func TestRequestsInTheAnnotationNeedANodeOfOurs(t *testing.T) {
	c := newCluster(t)
	c.kubeletsNode("kubelets", 8)
	c.node("ours", 2)
	startScheduler(t)
	request := func(name string) *corev1.Pod {
		pod := newPod(name, 1)
		kube.SetRequests(pod, `"gpugrp0/A/gpu/a/cards":1`)
		return pod
	}
	for _, name := range []string{"a", "b"} {
		if pod := c.schedule(request(name)); pod.Spec.NodeName != "ours" || devices(pod) == "" {
			t.Errorf("pod %s is on %s with %q", name, pod.Spec.NodeName, devices(pod))
		}
	}
	c.await(c.create(request("c")), "to be found unschedulable", kube.Unschedulable)
}

// A node lists all that pods request, in many spellings, and takes no pod itself.
func TestANodeThatReportsFalselyAffectsNoOtherNode(t *testing.T) {
	const hca = corev1.ResourceName("rdma/hca")
	c := newCluster(t)
	c.node("ours", 8)
	c.kubeletsNode("kubelets", 8)
	c.count("kubelets", map[corev1.ResourceName]int64{hca: 2, corev1.ResourceName(gpu.Resource): 8})
	startSchedulerWith(t, []string{"--best-devices-wait=1ms"})

	const names = `"rdma/hca":1,"cpu":1,"memory":1,"kubernetes.io/x":1,"a b/c":1,"nvidia.com/gpu":16,"/":1,` +
		`"resource/group/numa/0/rdma:hca/h0/device":1`
	large := ""
	for i := range 16 {
		large += fmt.Sprintf(`,"resource/group/gpugrp1/0/gpugrp0/0/gpu/g%d/cards":1`, i)
	}
	list := `{` + names + large + `}`
	c.publish(types.NewNodeInfoWithName("liar"))
	c.change("liar", func(node *corev1.Node) {
		node.Annotations = map[string]string{
			deviceinfo.Annotation: `{"capacity":` + list + `,"allocatable":` + list + `}`,
		}
	})
	liar, err := c.CoreV1().Nodes().Get(t.Context(), "liar", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	liar.Spec.Unschedulable = true
	if _, err := c.CoreV1().Nodes().Update(t.Context(), liar, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	rdma := newPod("rdma", 0)
	rdma.Spec.Containers[0].Resources.Limits = corev1.ResourceList{hca: resource.MustParse("1")}
	if pod := c.schedule(rdma); pod.Spec.NodeName != "kubelets" || pod.Annotations[deviceinfo.Annotation] != "" {
		t.Errorf("the pod that requests rdma is on %q with %q", pod.Spec.NodeName, pod.Annotations)
	}
	both := newPod("both", 1)
	both.Spec.Containers[0].Resources.Limits[hca] = resource.MustParse("1")
	if pod := c.schedule(both); pod.Spec.NodeName != "kubelets" {
		t.Errorf("the pod that requests both is on %q", pod.Spec.NodeName)
	}
	// The liar claims to have eight GPUs in one group, and never takes the pod.
	c.change("kubelets", func(node *corev1.Node) {
		setCounts(node, map[corev1.ResourceName]int64{corev1.ResourceName(gpu.Resource): 1, hca: 2})
	})
	eight := c.await(c.create(newPod("eight", 8)), "to be tried", func(pod *corev1.Pod) bool {
		return kube.Unschedulable(pod) || kube.Scheduled(pod)
	})
	c.count("ours", map[corev1.ResourceName]int64{ // a change that has the pod tried again
		corev1.ResourceName(gpu.Resource): 8, "example.com/other": 1,
	})
	if pod := c.await(eight, "to be bound", kube.Scheduled); pod.Spec.NodeName != "ours" {
		t.Errorf("the pod that requests eight GPUs is on %q", pod.Spec.NodeName)
	}
}
