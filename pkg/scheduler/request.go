// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// request returns what the pod asks for, or nil when it asks for no device.
//
// An extended resource that no inventory is known to list may be one that a node of this snapshot lists and whose event
// has not reached us: then the snapshot is asked. Other pods cost nothing.
func (p *Plugin) request(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo) (*dispatch.Request, error) {
	if !p.synced() || p.requestsUnknown(pod) {
		for _, node := range nodes {
			p.nodes.Observe(ctx, node.Node())
		}
	}
	request, err := p.nodes.Request(pod)
	if request != nil && forged(pod) {
		forgedAllocations.Inc()
		klog.FromContext(ctx).Info("Pod came with an allocation that the scheduler did not write; it is ignored. Install the admission policies, which refuse such pods", "pod", klog.KObj(pod))
	}
	return request, err
}

// forged reports whether the annotation of a pod that is not bound carries what only the scheduler may write.
func forged(pod *v1.Pod) bool {
	value := pod.Annotations[deviceinfo.Annotation]
	if value == "" {
		return false
	}
	info, err := deviceinfo.DecodePod(value)
	if err != nil {
		return false
	}
	if info.NodeName != "" {
		return true
	}
	for _, containers := range []map[string]types.ContainerInfo{info.RunningContainers, info.InitContainers} {
		for _, container := range containers {
			if len(container.DevRequests)+len(container.AllocateFrom) > 0 {
				return true
			}
		}
	}
	return false
}

func (p *Plugin) requestsUnknown(pod *v1.Pod) bool {
	for _, names := range nodestate.ExtendedResources(pod) {
		for _, name := range names {
			if !p.nodes.Serves(name) {
				return true
			}
		}
	}
	return false
}
