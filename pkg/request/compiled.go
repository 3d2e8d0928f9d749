// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request/names"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// requestsByName reports whether a pod that is not bound requests devices by the names of HAMi and
// KAI. The annotation of a bound one has what became of them.
func requestsByName(pod *corev1.Pod) bool { return pod.Spec.NodeName == "" && names.Requests(pod) }

// WithNames returns what a pod that is not bound requests in its annotation, and by the names of
// HAMi and KAI, which become requests of its annotation. written is the annotation, which
// WithNames does not change. The error names what cannot be served: see [names.Error].
func WithNames(pod *corev1.Pod, written *types.PodInfo) (*types.PodInfo, error) {
	compiled := names.Compile(pod)
	if compiled == nil {
		return written, nil
	}
	if len(compiled.Errors) > 0 {
		return nil, compiled.Errors[0]
	}
	merged := *written
	for _, container := range Containers(pod) {
		requests := compiled.Requests[container.Name]
		if len(requests) == 0 {
			continue
		}
		list := &merged.RunningContainers
		if container.Kind == grouptree.Init {
			list = &merged.InitContainers
		}
		info := (*list)[container.Name]
		if err := checkNotBoth(container.Name, info.Requests); err != nil {
			return nil, err
		}
		info.Requests = maps.Clone(info.Requests)
		if info.Requests == nil {
			info.Requests = types.ResourceList{}
		}
		maps.Copy(info.Requests, requests)
		*list = maps.Clone(*list)
		if *list == nil {
			*list = map[string]types.ContainerInfo{}
		}
		(*list)[container.Name] = info
	}
	return &merged, nil
}

// checkNotBoth returns an error for a container that requests GPUs by their paths in the
// annotation, and parts of GPUs by the names of HAMi or KAI: whether the parts are of the same GPUs
// is not said.
func checkNotBoth(container string, requests types.ResourceList) error {
	for _, request := range slices.Sorted(maps.Keys(requests)) {
		path, err := resource.ParseRequest(request)
		if err != nil || !IsPath(request) {
			continue
		}
		if _, isGPU := path.Instance("gpu"); isGPU {
			return fmt.Errorf("container %q requests %s in the annotation %s, and parts of GPUs by the names of HAMi "+
				"or KAI: write all of it in one way", container, request, deviceinfo.Annotation)
		}
	}
	return nil
}
