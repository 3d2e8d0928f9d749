// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	v1helper "k8s.io/kubernetes/pkg/apis/core/v1/helper"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Request returns what the pod asks for, or nil when it asks for no device. A device pod is one that has requests in its
// annotation, or one that requests a resource name which some node's inventory lists or a plugin claims. The error says
// why the annotation cannot be read.
func (c *Cache) Request(pod *v1.Pod) (*dispatch.Request, error) {
	counted := ExtendedResources(pod)
	for container, names := range counted {
		if served := slices.DeleteFunc(names, func(name sdk.ResourceName) bool { return !c.Serves(name) }); len(served) > 0 {
			counted[container] = served
		} else {
			delete(counted, container)
		}
	}
	if len(counted) == 0 && pod.Annotations[deviceinfo.Annotation] == "" {
		return nil, nil
	}
	info, err := deviceinfo.PodRequest(pod)
	if err != nil {
		return nil, err
	}
	if len(counted) == 0 && !requests(info) {
		return nil, nil
	}
	return &dispatch.Request{Pod: info, Containers: Containers(pod), Counted: counted}, nil
}

func requests(pod *sdk.PodInfo) bool {
	if len(pod.Requests) > 0 {
		return true
	}
	for _, list := range []map[string]sdk.ContainerInfo{pod.RunningContainers, pod.InitContainers} {
		for _, container := range list {
			if len(container.Requests) > 0 {
				return true
			}
		}
	}
	return false
}

// ExtendedResources returns, by container and in the order of their names, the extended resources of which the pod
// requests more than none; nil when there are none. For those, requests and limits are equal.
func ExtendedResources(pod *v1.Pod) map[string][]sdk.ResourceName {
	var byContainer map[string][]sdk.ResourceName
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for name, quantity := range containers[i].Resources.Requests {
				if !v1helper.IsExtendedResourceName(name) || quantity.IsZero() {
					continue
				}
				if byContainer == nil {
					byContainer = map[string][]sdk.ResourceName{}
				}
				byContainer[containers[i].Name] = append(byContainer[containers[i].Name], sdk.ResourceName(name))
			}
			slices.Sort(byContainer[containers[i].Name])
		}
	}
	return byContainer
}

// Containers returns the pod's containers, init containers first, with the kind that says when they run.
func Containers(pod *v1.Pod) []grouptree.Container {
	list := make([]grouptree.Container, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	for i := range pod.Spec.InitContainers {
		container := grouptree.Container{Name: pod.Spec.InitContainers[i].Name, Kind: grouptree.Init}
		if policy := pod.Spec.InitContainers[i].RestartPolicy; policy != nil && *policy == v1.ContainerRestartPolicyAlways {
			container.Kind = grouptree.Sidecar
		}
		list = append(list, container)
	}
	for i := range pod.Spec.Containers {
		list = append(list, grouptree.Container{Name: pod.Spec.Containers[i].Name, Kind: grouptree.Regular})
	}
	return list
}
