// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

const (
	// lateBinding is how long a binding that the API server did not answer may still take effect: its limit for a request.
	lateBinding = time.Minute

	// lookDeadline is the limit for one look at the pod.
	lookDeadline = 10 * time.Second
)

// settle finds out whether a binding took effect, which it can until the deadline, and gives the devices back when it is
// sure that it did not. Where it did, the reservation goes when a snapshot shows the bound pod.
func (p *Plugin) settle(ctx context.Context, pod *v1.Pod, nodeName string, deadline time.Time) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "pod", klog.KObj(pod), "node", klog.KRef("", nodeName))
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 8, Cap: lookDeadline}
	_ = backoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		bound, known := p.lookAt(ctx, pod, nodeName, p.clock.Now().After(deadline))
		if !known {
			return false, nil
		}
		logger.V(2).Info("Found out whether a binding without an answer took effect", "tookEffect", bound)
		if !bound {
			p.nodes.Settle(nodeName, pod.UID)
			p.waker.in(0)
		}
		return true, nil
	})
}

// lookAt reports whether the pod is bound to the node, and whether that is final.
func (p *Plugin) lookAt(ctx context.Context, pod *v1.Pod, nodeName string, tooLate bool) (bound, known bool) {
	ctx, cancel := context.WithTimeout(ctx, lookDeadline)
	defer cancel()
	current, err := p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && current.UID != pod.UID:
		return false, true
	case err != nil:
		return false, false
	case current.Spec.NodeName == "":
		return false, tooLate
	default:
		return current.Spec.NodeName == nodeName, true
	}
}
