// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/test/kube"
)

// Nodes change sides while pods come and go: each pod is bound once, and with devices exactly where
// its node had them.
func TestANodeIsMovedOverAndBackUnderLoad(t *testing.T) {
	const gpus = 4
	c := newCluster(t)
	c.node("moving", gpus)
	c.node("ours", gpus)
	c.kubeletsNode("kubelets", gpus)
	startScheduler(t)

	ctx, stop := context.WithCancel(t.Context())
	load := make(chan int)
	go func() { // pods come and go
		made := 0
		for ; ctx.Err() == nil; made++ {
			if _, err := c.CreatePod(ctx, newPod(fmt.Sprint("load", made), 1)); err != nil {
				break
			}
			list, err := c.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
			if err != nil {
				break
			}
			for _, pod := range list.Items {
				if kube.Scheduled(&pod) && len(list.Items) > 3*gpus {
					_ = c.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, atOnce) // it may be gone
					break
				}
			}
		}
		load <- made
	}()
	counts := map[corev1.ResourceName]int64{corev1.ResourceName(gpu.Resource): gpus}
	node, err := c.CoreV1().Nodes().Get(t.Context(), "moving", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	inventory := node.Annotations[deviceinfo.Annotation]
	for range 3 {
		for _, ours := range []bool{false, true} {
			// The node is drained: with the count at 0 nothing new comes, then its pods go.
			c.change("moving", func(node *corev1.Node) {
				setCounts(node, map[corev1.ResourceName]int64{corev1.ResourceName(gpu.Resource): 0})
			})
			c.drain("moving")
			c.change("moving", func(node *corev1.Node) {
				node.Annotations = nil
				if ours {
					node.Annotations = map[string]string{deviceinfo.Annotation: inventory}
				}
				setCounts(node, counts)
			})
			c.awaitPodsOn("moving", gpus)
			c.byNode(map[string]bool{"ours": true, "moving": ours})
		}
	}
	stop()
	if made := <-load; made < 6*gpus {
		t.Errorf("only %d pods came", made)
	}
	c.clearPods()
	for i := range 3 * gpus {
		c.schedule(newPod(fmt.Sprint("after", i), 1))
	}
	bound := c.byNode(map[string]bool{"ours": true, "moving": true})
	if len(bound) != 3 || bound["moving"] != gpus {
		t.Errorf("pods by node: %v", bound)
	}
}

// drain deletes a node's pods until none comes any more, once the scheduler has seen that none may.
func (c *cluster) drain(node string) {
	c.Helper()
	c.awaitKnown(node)
	quiet := 0
	c.until(node+" to be drained", func(ctx context.Context) (bool, error) {
		quiet++
		for _, pod := range c.pods() {
			if pod.Spec.NodeName == node {
				_ = c.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, atOnce) // it may be gone
				quiet = 0
			}
		}
		return quiet >= 10, nil
	})
}

// awaitPodsOn waits until so many pods are bound to a node.
func (c *cluster) awaitPodsOn(node string, want int) {
	c.Helper()
	c.until(fmt.Sprintf("%d pods on %s", want, node), func(context.Context) (bool, error) {
		bound := 0
		for _, pod := range c.pods() {
			if pod.Spec.NodeName == node {
				bound++
			}
		}
		return bound == want, nil
	})
}
