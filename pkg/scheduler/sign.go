// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	v1helper "k8s.io/kubernetes/pkg/apis/core/v1/helper"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// SignPod tells upstream which pods are alike for this plugin, so that it may reuse an answer: those with the same
// annotation and, where it could matter, the same requests container by container.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	fragments := []fwk.SignFragment{{Key: "v1.Pod.Annotations." + deviceinfo.Annotation, Value: pod.Annotations[deviceinfo.Annotation]}}
	if byContainer := requestsByContainer(pod); len(byContainer) > 0 {
		fragments = append(fragments, fwk.SignFragment{Key: "v1.Pod.Spec." + Name + ".requestsByContainer()", Value: byContainer})
	}
	return fragments, nil
}

// requestsByContainer returns the quantities of extended resources, for pods that request any: upstream signs their sum
// over all containers, but which container gets which device depends on each.
func requestsByContainer(pod *v1.Pod) map[string]v1.ResourceList {
	byContainer := map[string]v1.ResourceList{}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for name, quantity := range containers[i].Resources.Requests {
				if !v1helper.IsExtendedResourceName(name) {
					continue
				}
				if byContainer[containers[i].Name] == nil {
					byContainer[containers[i].Name] = v1.ResourceList{}
				}
				byContainer[containers[i].Name][name] = quantity
			}
		}
	}
	return byContainer
}
