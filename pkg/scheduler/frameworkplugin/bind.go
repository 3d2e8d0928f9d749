// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"errors"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// Bind binds a pod that has devices reserved, with one Binding that carries the allocation and its
// seal: the API server copies the annotations onto the pod in the write that sets spec.nodeName.
// All other pods are left to the next bind plugin.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	if c := p.cycleOf(state); c == nil || c.noDevices {
		return fwk.NewStatus(fwk.Skip)
	}
	annotation := p.nodes.Reserved(nodeName, pod.UID)
	if annotation == "" {
		return fwk.AsStatus(
			fmt.Errorf("bind pod %q: no devices are reserved for it on node %q", klog.KObj(pod), nodeName))
	}
	annotations := map[string]string{deviceinfo.Annotation: annotation}
	if p.seals.Keys != nil {
		text, err := p.sealOf(pod, nodeName, annotation)
		if err != nil {
			return fwk.AsStatus(err)
		}
		annotations[seal.Annotation] = text
	}
	p.requirePlugin(annotations, pod, nodeName)
	err := p.bind(ctx, &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   pod.Namespace,
			Name:        pod.Name,
			UID:         pod.UID,
			Annotations: annotations,
		},
		Target: v1.ObjectReference{Kind: "Node", Name: nodeName},
	})
	if err == nil {
		p.reportShares(pod, nodeName)
		return nil
	}
	if !isNotBound(err) {
		// The answer is lost, the binding perhaps not: the devices stay with the pod until that is
		// known.
		p.nodes.Keep(nodeName, pod.UID)
		deadline := p.clock.Now().Add(lateBinding)
		p.Run(func(ctx context.Context) { p.resolveBinding(ctx, pod, nodeName, deadline) })
	}
	return fwk.AsStatus(err)
}

// requirePlugin adds the annotations by which the node's container runtime does not create the
// pod's containers without kubecri, if the node says that it can.
func (p *Plugin) requirePlugin(annotations map[string]string, pod *v1.Pod, nodeName string) {
	node, err := p.nodeLister.Get(nodeName)
	if err != nil || node.Annotations[deviceinfo.RequiredPluginAnnotation] != deviceinfo.NRIPlugin {
		return
	}
	var containers []string
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			containers = append(containers, list[i].Name)
		}
	}
	maps.Copy(annotations, deviceinfo.RequirePlugin(pod.Annotations, containers))
}

// bind creates the Binding as upstream's DefaultBinder does.
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

// isNotBound reports whether the error says that the pod was not bound. A conflict does not say so:
// binding is tried again after some errors, and what is in conflict may be the try before.
func isNotBound(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return utilnet.IsConnectionRefused(err)
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && !apierrors.IsConflict(err) && !apierrors.IsTimeout(err)
}
