// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubetypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	sdkresource "github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/kube"
)

// timeout is how long a test waits for what should take no time.
const timeout = 30 * time.Second

// cluster is what one test has of the API server: nodes and pods, which go with the test.
type cluster struct {
	*testing.T
	*kube.Client
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{T: t, Client: server.Admin}
	t.Cleanup(c.clear)
	return c
}

// clear deletes all pods, pod groups and nodes.
func (c *cluster) clear() {
	ctx := context.Background() // the test's has ended
	c.clearPods()
	if err := c.SchedulingV1beta1().PodGroups(metav1.NamespaceDefault).DeleteCollection(ctx, atOnce,
		metav1.ListOptions{}); err != nil {
		c.Error(err)
	}
	if err := c.CoreV1().Nodes().DeleteCollection(ctx, atOnce, metav1.ListOptions{}); err != nil {
		c.Error(err)
	}
}

// atOnce deletes without grace.
var atOnce = metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}

// clearPods deletes all pods.
func (c *cluster) clearPods() {
	if err := c.CoreV1().Pods(metav1.NamespaceDefault).DeleteCollection(context.Background(), atOnce,
		metav1.ListOptions{}); err != nil {
		c.Error(err)
	}
}

// node creates a node with this many GPUs, two of them in each close group.
func (c *cluster) node(name string, gpus int) {
	c.Helper()
	c.nodeOf(name, listed(name, gpus)...)
}

// listed returns this many GPUs of a node, two of them in each close group.
func listed(node string, gpus int) []gpu.GPU {
	list := make([]gpu.GPU, gpus)
	for i := range list {
		list[i] = gpu.GPU{ID: fmt.Sprintf("%s-gpu-%d", node, i), Memory: 80 << 30, Groups: []int{i / 2, 0}}
	}
	return list
}

// nodeOf creates a node with these GPUs.
func (c *cluster) nodeOf(name string, list ...gpu.GPU) {
	c.Helper()
	info := types.NewNodeInfoWithName(name)
	gpu.Publish(info, gpu.Resource, list)
	c.publish(info)
}

// publish creates a node that has these devices, and as many of each plain resource as its capacity
// says.
func (c *cluster) publish(info *types.NodeInfo) {
	c.Helper()
	name := info.Name
	annotation, err := deviceinfo.EncodeNode(info)
	if err != nil {
		c.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
		Annotations: map[string]string{deviceinfo.Annotation: annotation}}}
	if node, err = c.CoreV1().Nodes().Create(c.Context(), node, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	node.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	for plain, quantity := range info.Capacity {
		if !sdkresource.IsGroupResourceName(plain) {
			node.Status.Capacity[corev1.ResourceName(plain)] = *resource.NewQuantity(quantity, resource.DecimalSI)
		}
	}
	node.Status.Allocatable = node.Status.Capacity
	if node, err = c.CoreV1().Nodes().UpdateStatus(c.Context(), node, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
	node.Spec.Taints = nil // the API server's own, for nodes that are not ready yet
	if _, err = c.CoreV1().Nodes().Update(c.Context(), node, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
}

// patch changes a node's metadata.
func (c *cluster) patch(node string, metadata map[string]any) {
	c.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		c.Fatal(err)
	}
	if _, err := c.CoreV1().Nodes().Patch(c.Context(), node, kubetypes.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		c.Fatal(err)
	}
}

// known is how often a scheduler was waited for. It goes on from one test to the next, as some
// share a scheduler, which may still have the nodes of the test before.
var known int

// awaitKnown waits until the scheduler knows a node and all that was written before: a pod that
// only this state of the node can take is bound.
func (c *cluster) awaitKnown(node string) {
	c.Helper()
	known++
	label := map[string]string{"known": strconv.Itoa(known)}
	c.patch(node, map[string]any{"labels": label})
	witness := newPod("witness", 0)
	witness.Spec.NodeSelector = label
	c.delete(c.schedule(witness))
}

// newPod returns a pod that requests this many GPUs by its limits alone.
func newPod(name string, gpus int64) *corev1.Pod {
	pod := kube.NewPod(name, "busybox")
	if gpus > 0 {
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceName(
			gpu.Resource): *resource.NewQuantity(gpus, resource.DecimalSI)}
	}
	return pod
}

// allocated returns the annotation that gives a pod the GPU of that number of a node.
func allocated(podName, nodeName string, number int) string {
	const request = "resource/group/gpugrp1/0/gpugrp0/0/gpu/0/cards"
	return fmt.Sprintf(`{"podname":%q,"nodename":%q,"runningcontainer":{"main":{"devrequests":{%q:1},`+
		`"allocatefrom":{%q:"resource/group/gpugrp1/0/gpugrp0/%d/gpu/%s-gpu-%d/cards"}}}}`,
		podName, nodeName, request, request, number/2, nodeName, number)
}

func (c *cluster) create(pod *corev1.Pod) *corev1.Pod {
	c.Helper()
	pod, err := c.CreatePod(c.Context(), pod)
	if err != nil {
		c.Fatal(err)
	}
	return pod
}

// await waits until is holds for a pod.
func (c *cluster) await(pod *corev1.Pod, what string, is func(*corev1.Pod) bool) *corev1.Pod {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), timeout)
	defer cancel()
	pod, err := c.AwaitPod(ctx, pod, what, is)
	if err != nil {
		c.Fatal(err)
	}
	return pod
}

// until waits until a condition holds that nothing announces. what completes the sentence
// "wait for ...".
func (c *cluster) until(what string, holds func(context.Context) (bool, error)) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), timeout)
	defer cancel()
	if err := await.Until(ctx, what, holds); err != nil {
		c.Fatal(err)
	}
}

// schedule creates a pod and waits until it is bound.
func (c *cluster) schedule(pod *corev1.Pod) *corev1.Pod {
	c.Helper()
	return c.await(c.create(pod), "to be bound", kube.Scheduled)
}

// delete deletes a pod at once.
func (c *cluster) delete(pod *corev1.Pod) {
	c.Helper()
	if err := c.DeletePod(c.Context(), pod); err != nil {
		c.Fatal(err)
	}
}

// pods returns all pods.
func (c *cluster) pods() []corev1.Pod {
	c.Helper()
	list, err := c.CoreV1().Pods(metav1.NamespaceDefault).List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return list.Items
}

// devices returns the GPUs that a bound pod was allocated, sorted, or what is wrong with its
// allocation.
func devices(pod *corev1.Pod) string {
	info, err := deviceinfo.PodAllocation(pod)
	if err != nil {
		return err.Error()
	}
	var ids []string
	for _, container := range info.Containers() {
		ids = append(ids, gpu.Allocated(&container)...)
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// gpusOf returns the GPUs that a bound pod was allocated, which are as many as its limits
// request.
func gpusOf(pod *corev1.Pod) ([]string, error) {
	want := pod.Spec.Containers[0].Resources.Limits[corev1.ResourceName(gpu.Resource)]
	if want.IsZero() && pod.Annotations[deviceinfo.Annotation] == "" {
		return nil, nil
	}
	ids := strings.Fields(devices(pod))
	if int64(len(ids)) != want.Value() {
		return nil, fmt.Errorf("pod %s requests %v GPUs and has: %s", pod.Name, want.Value(), devices(pod))
	}
	return ids, nil
}

// check makes sure that every bound pod that requests GPUs has as many, and that no two pods have
// the same. It returns the number of bound pods.
func (c *cluster) check() int {
	c.Helper()
	holders := map[string]string{}
	bound := 0
	for _, pod := range c.pods() {
		if pod.Spec.NodeName == "" {
			continue
		}
		bound++
		ids, err := gpusOf(&pod)
		if err != nil {
			c.Error(err)
		}
		for _, id := range ids {
			if other, taken := holders[id]; taken {
				c.Errorf("%s has been allocated to %s and to %s", id, other, pod.Name)
			}
			holders[id] = pod.Name
		}
	}
	return bound
}
