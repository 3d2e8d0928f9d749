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

// evictor evicts pods through the Eviction API, which respects their budgets.
type evictor struct {
	client  kubernetes.Interface
	events  Events
	metrics Metrics
}

// evictionReasons are what the events about an eviction say.
type evictionReasons struct{ evicted, blocked, why string }

// try tries once to evict the pod, and reports whether it is evicted. Otherwise attempts says when
// to try again. blocked is why it could not be evicted, as the last event said.
func (e evictor) try(
	ctx context.Context, pod *corev1.ObjectReference, attempts *attempts, blocked *string, reasons evictionReasons,
) (evicted bool) {
	now := time.Now()
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	err := e.client.CoreV1().Pods(pod.Namespace).EvictV1(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
	})
	switch {
	case err == nil:
		attempts.next = time.Time{}
		e.metrics.ObserveEviction(Evicted)
		e.events.Warn(pod, reasons.evicted, "the pod is evicted: "+reasons.why)
		return true
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// It is gone, and the watch says so soon; or its budget is being written.
		attempts.failed(now, 0)
		return false
	case apierrors.IsTooManyRequests(err):
		e.metrics.ObserveEviction(Blocked)
	default:
		e.metrics.ObserveEviction(Failed)
	}
	if text := fmt.Sprintf("the pod cannot be evicted yet: %v", err); text != *blocked {
		*blocked = text
		e.events.Warn(pod, reasons.blocked, text)
	}
	seconds, _ := apierrors.SuggestsClientDelay(err)
	attempts.failed(now, time.Duration(seconds)*time.Second)
	return false
}
