// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicehealth

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Evictor evicts pods through the Eviction API, which respects their budgets. It is safe for
// concurrent use.
type Evictor struct {
	Client  kubernetes.Interface
	Events  Events
	Metrics Metrics
}

// EvictionReasons are the reasons of the events on a pod that is evicted, and that is not, and why
// it is.
type EvictionReasons struct{ Evicted, Blocked, Why string }

// Evict tries once to evict the pod, and reports whether it is evicted. If not, an event says why.
// It takes 10 seconds at most.
func (e Evictor) Evict(ctx context.Context, pod *corev1.ObjectReference, reasons EvictionReasons) (evicted bool) {
	var blocked string
	return e.try(ctx, pod, &attempts{}, &blocked, reasons)
}

// try tries once to evict the pod, and reports whether it is evicted. Otherwise attempts says when
// to try again. blocked is why it could not be evicted, as the last event said.
func (e Evictor) try(
	ctx context.Context, pod *corev1.ObjectReference, attempts *attempts, blocked *string, reasons EvictionReasons,
) (evicted bool) {
	now := time.Now()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := e.Client.CoreV1().Pods(pod.Namespace).EvictV1(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
	})
	switch {
	case err == nil:
		attempts.next = time.Time{}
		e.Metrics.ObserveEviction(Evicted)
		e.Events.Warn(pod, reasons.Evicted, "the pod is evicted: "+reasons.Why)
		return true
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// It is gone, and the watch says so soon; or its budget is being written.
		attempts.failed(now, 0)
		return false
	case apierrors.IsTooManyRequests(err):
		e.Metrics.ObserveEviction(Blocked)
	default:
		e.Metrics.ObserveEviction(Failed)
	}
	if text := fmt.Sprintf("the pod cannot be evicted yet: %v", err); text != *blocked {
		*blocked = text
		e.Events.Warn(pod, reasons.Blocked, text)
	}
	seconds, _ := apierrors.SuggestsClientDelay(err)
	attempts.failed(now, time.Duration(seconds)*time.Second)
	return false
}
