// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
)

const (
	// lateBinding is how long a binding that the API server did not answer may still take effect:
	// the server's own limit for a request.
	lateBinding = time.Minute

	// requestTimeout is the limit for one request to the API server.
	requestTimeout = 10 * time.Second
)

// resolveBinding finds out whether a binding took effect, which it can until the deadline, and
// releases the devices when it certainly did not. When it did, the reservation is dropped once a
// snapshot shows the bound pod, or when the pod is deleted, even if it is reserved on another node
// by then.
func (p *Plugin) resolveBinding(ctx context.Context, pod *v1.Pod, nodeName string, deadline time.Time) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), logkey.Pod, klog.KObj(pod),
		logkey.Node, klog.KRef("", nodeName))
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 8, Cap: requestTimeout}
	_ = backoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		bound, final := p.boundTo(ctx, pod, nodeName, p.clock.Now().After(deadline))
		if !final {
			return false, nil
		}
		logger.V(2).Info("Resolved a binding without an answer", logkey.TookEffect, bound)
		if !bound {
			p.nodes.Resolve(nodeName, pod.UID)
			p.requeuer.activateAfter(0)
		}
		return true, nil
	})
}

// boundTo reports whether the pod is bound to the node, and whether that is final. expired says
// that a binding without an answer cannot take effect any more.
func (p *Plugin) boundTo(ctx context.Context, pod *v1.Pod, nodeName string, expired bool) (bound, final bool) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	current, err := p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && current.UID != pod.UID:
		return false, true
	case err != nil:
		return false, false
	case current.Spec.NodeName == "":
		return false, expired
	default:
		return current.Spec.NodeName == nodeName, true
	}
}
