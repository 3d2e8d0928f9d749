// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/kubedevice/kubedevice/test/await"
)

// errGone says that the pod which was waited for has been deleted.
var errGone = errors.New("it has been deleted")

// AwaitPod waits until is holds for a pod, and returns the pod as it is then. what completes the
// sentence "wait for the pod ...". The error, when ctx ends first, describes the pod's state and
// its last events.
func (c *Client) AwaitPod(ctx context.Context, pod *corev1.Pod, what string,
	is func(*corev1.Pod) bool) (*corev1.Pod, error) {
	found, err := c.watchPod(ctx, pod, func(current *corev1.Pod) (bool, error) {
		if current == nil {
			return false, errGone
		}
		return is(current), nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for pod %s %s: %w\n%s", pod.Name, what, err,
			c.Describe(context.WithoutCancel(ctx), pod))
	}
	return found, nil
}

// AwaitServiceAccount waits until a namespace has the default service account, without which no pod
// can be created in it.
func (c *Client) AwaitServiceAccount(ctx context.Context, namespace string) error {
	accounts := cache.NewListWatchFromClient(c.CoreV1().RESTClient(), "serviceaccounts", namespace,
		fields.OneTermEqualSelector(metav1.ObjectNameField, "default"))
	_, err := watchtools.UntilWithSync(ctx, accounts, &corev1.ServiceAccount{}, nil,
		func(event watch.Event) (bool, error) { return event.Type != watch.Deleted, nil },
	)
	if err != nil {
		return fmt.Errorf("wait for the default service account of namespace %s: %w", namespace, err)
	}
	return nil
}

// AwaitRights waits until the API server has noticed that c may do something, as it does some time
// after a role was bound.
func (c *Client) AwaitRights(ctx context.Context, rights ...authorizationv1.ResourceAttributes) error {
	for _, right := range rights {
		review := &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right},
		}
		what := fmt.Sprintf("the right to %s %s/%s", right.Verb, right.Resource, right.Subresource)
		err := await.Until(ctx, what, func(ctx context.Context) (bool, error) {
			answer, err := c.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			return err == nil && answer.Status.Allowed, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) awaitGone(ctx context.Context, pod *corev1.Pod) error {
	_, err := c.watchPod(ctx, pod, func(current *corev1.Pod) (bool, error) { return current == nil, nil })
	if err != nil {
		return fmt.Errorf("wait for pod %s to be gone: %w\n%s", pod.Name, err,
			c.Describe(context.WithoutCancel(ctx), pod))
	}
	return nil
}

// watchPod calls until with each state of a pod, nil when it doesn't exist or its name belongs to
// another pod by now, until it returns true or an error. It returns the last state.
func (c *Client) watchPod(ctx context.Context, pod *corev1.Pod,
	until func(*corev1.Pod) (bool, error)) (*corev1.Pod, error) {
	var last *corev1.Pod
	inspectRaw := func(object any, exists bool) (bool, error) {
		last = nil
		if current, ok := object.(*corev1.Pod); ok && exists && (pod.UID == types.UID("") || current.UID == pod.UID) {
			last = current
		}
		return until(last)
	}
	pods := cache.NewListWatchFromClient(c.CoreV1().RESTClient(), "pods", pod.Namespace,
		fields.OneTermEqualSelector(metav1.ObjectNameField, pod.Name))
	_, err := watchtools.UntilWithSync(ctx, pods, &corev1.Pod{},
		func(store cache.Store) (bool, error) {
			object, exists, err := store.GetByKey(pod.Namespace + "/" + pod.Name)
			if err != nil {
				return false, err
			}
			return inspectRaw(object, exists)
		},
		func(event watch.Event) (bool, error) { return inspectRaw(event.Object, event.Type != watch.Deleted) },
	)
	return last, err
}

// Ready says whether a pod runs and is ready.
func Ready(pod *corev1.Pod) bool { return conditionIs(pod, corev1.PodReady, corev1.ConditionTrue) }

// Scheduled says whether a pod has a node.
func Scheduled(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" }

// Unschedulable says whether the scheduler has looked at a pod and found no node for it.
func Unschedulable(pod *corev1.Pod) bool {
	return conditionIs(pod, corev1.PodScheduled, corev1.ConditionFalse)
}

// Succeeded says whether all containers of a pod have succeeded.
func Succeeded(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded }

func conditionIs(pod *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == kind {
			return condition.Status == status
		}
	}
	return false
}
