// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// lateBinding is how long a binding that the API server did not answer may still take effect: its limit for a request.
const lateBinding = time.Minute

// Bind binds a pod that has devices reserved, with one Binding that carries the allocation: the API server copies the
// annotation onto the pod in the write that sets spec.nodeName. All other pods are left to the next bind plugin.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	if cycleOf(state) == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	annotation := p.nodes.Reserved(nodeName, pod.UID)
	if annotation == "" {
		return fwk.AsStatus(fmt.Errorf("bind pod %q: no devices are reserved for it on node %q", klog.KObj(pod), nodeName))
	}
	err := p.bind(ctx, &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   pod.Namespace,
			Name:        pod.Name,
			UID:         pod.UID,
			Annotations: map[string]string{deviceinfo.Annotation: annotation},
		},
		Target: v1.ObjectReference{Kind: "Node", Name: nodeName},
	})
	if err == nil {
		return nil
	}
	if !refused(err) {
		// The answer is lost, the binding perhaps not: the devices stay with the pod until that is known.
		p.nodes.Keep(nodeName, pod.UID)
		p.settling.Go(func() { p.settle(pod, nodeName) })
	}
	return fwk.AsStatus(err)
}

// bind does what upstream's DefaultBinder does.
func (p *Plugin) bind(ctx context.Context, binding *v1.Binding) error {
	cacher := p.handle.APICacher()
	if cacher == nil {
		return util.BindPod(ctx, p.handle.ClientSet(), binding)
	}
	finished, err := cacher.BindPod(binding)
	if err != nil {
		return err
	}
	return cacher.WaitOnFinish(ctx, finished)
}

// refused reports whether the API server said that it did not bind the pod.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && !apierrors.IsTimeout(err) && !apierrors.IsTooManyRequests(err)
}

// settle finds out whether a binding took effect, and drops the reservation when it is sure that it did not. Where it did,
// the reservation goes when a snapshot shows the bound pod.
func (p *Plugin) settle(pod *v1.Pod, nodeName string) {
	logger := klog.LoggerWithValues(klog.FromContext(p.ctx), "pod", klog.KObj(pod), "node", klog.KRef("", nodeName))
	deadline := time.Now().Add(lateBinding)
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 8, Cap: 10 * time.Second}
	_ = backoff.DelayFunc().Until(p.ctx, true, false, func(ctx context.Context) (bool, error) {
		current, err := p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && current.UID != pod.UID:
			logger.V(2).Info("Pod is gone, its devices are free again")
		case err != nil:
			return false, nil
		case current.Spec.NodeName == nodeName:
			logger.V(2).Info("Binding took effect although its answer was lost")
			return true, nil
		case current.Spec.NodeName == "" && time.Now().Before(deadline):
			return false, nil
		default:
			logger.V(2).Info("Binding did not take effect, its devices are free again")
		}
		p.nodes.Settle(nodeName, pod.UID)
		return true, nil
	})
}
