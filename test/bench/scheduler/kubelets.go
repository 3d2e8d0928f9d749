// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/test/kube"
)

// kubelets are those of all nodes, without containers: they admit pods by the check that the
// kubelet makes, in the order in which the pods come, and end each after a while.
type kubelets struct {
	client   *kube.Client
	lifetime time.Duration

	mu     sync.Mutex
	nodes  map[string]*admitting
	counts [2]counts // of pods with devices, and of others
	ended  int
}

// admitting is a node with the pods that it has admitted.
type admitting struct {
	node *corev1.Node
	pods map[types.UID]*corev1.Pod
}

type counts struct{ admitted, lost int }

func newKubelets(client *kube.Client, nodes []*corev1.Node, lifetime time.Duration) *kubelets {
	k := &kubelets{
		client: client, lifetime: lifetime, nodes: map[string]*admitting{},
	}
	for _, node := range nodes {
		k.nodes[node.Name] = &admitting{node, map[types.UID]*corev1.Pod{}}
	}
	return k
}

// run serves the nodes until ctx ends.
func (k *kubelets) run(ctx context.Context) error {
	bound := cache.NewFilteredListWatchFromClient(k.client.CoreV1().RESTClient(), "pods", metav1.NamespaceDefault,
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
		})
	group, inner := errgroup.WithContext(ctx)
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: bound, ObjectType: &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
			pod := obj.(*corev1.Pod)
			if admitted := k.decide(pod); admitted {
				group.Go(func() error { return k.end(inner, pod) })
			} else {
				group.Go(func() error { return k.refuse(inner, pod) })
			}
		}},
	})
	group.Go(func() error { informer.RunWithContext(inner); return nil })
	return group.Wait()
}

// decide admits a pod or refuses it.
func (k *kubelets) decide(pod *corev1.Pod) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	node, kind := k.nodes[pod.Spec.NodeName], 1
	if _, ok := pod.Spec.Containers[0].Resources.Limits[corev1.ResourceName(gpu.Resource)]; ok {
		kind = 0
	}
	var others []*corev1.Pod
	for _, other := range node.pods {
		others = append(others, other)
	}
	info := framework.NewNodeInfo(others...)
	info.SetNode(node.node)
	if len(scheduler.AdmissionCheck(pod, info, false)) > 0 {
		k.counts[kind].lost++
		return false
	}
	k.counts[kind].admitted++
	node.pods[pod.UID] = pod
	return true
}

// refuse does what a kubelet does with a pod that it does not admit, and a controller with one that
// has failed.
func (k *kubelets) refuse(ctx context.Context, pod *corev1.Pod) error {
	failed := pod.DeepCopy()
	failed.Status.Phase, failed.Status.Reason = corev1.PodFailed, "OutOfcpu"
	_, err := k.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, failed, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		return fmt.Errorf("write that pod %s has failed: %w", pod.Name, err)
	}
	return k.remove(ctx, pod)
}

// end ends a pod when its time is over.
func (k *kubelets) end(ctx context.Context, pod *corev1.Pod) error {
	if err := sleep(ctx, k.lifetime); err != nil {
		return nil // the measurement is over
	}
	k.mu.Lock()
	delete(k.nodes[pod.Spec.NodeName].pods, pod.UID)
	k.mu.Unlock()
	return k.remove(ctx, pod)
}

func (k *kubelets) remove(ctx context.Context, pod *corev1.Pod) error {
	err := k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	k.mu.Lock()
	k.ended++
	k.mu.Unlock()
	return nil
}

// counted returns how many pods were admitted and refused.
func (k *kubelets) counted() [2]counts {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.counts
}

// gone returns how many pods were removed.
func (k *kubelets) gone() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ended
}
