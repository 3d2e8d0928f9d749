// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Pod is what is remembered of one of the node's pods.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Asks are the extended resources that the pod's containers ask for, by the container's name. A pod that asks for none
	// has none.
	Asks map[string][]string `json:"asks,omitempty"`
	// Over says that the pod has succeeded or failed: none of its containers will be started again.
	Over bool `json:"over,omitempty"`
}

// AsksFor returns those of the resources that any container of the pod asks for.
func (p Pod) AsksFor(resources map[string]bool) []string {
	var asked []string
	for container := range p.Asks {
		asked = append(asked, p.ContainerAsksFor(container, resources)...)
	}
	slices.Sort(asked)
	return slices.Compact(asked)
}

// ContainerAsksFor returns those of the resources that the container asks for.
func (p Pod) ContainerAsksFor(container string, resources map[string]bool) []string {
	var asked []string
	for _, name := range p.Asks[container] {
		if resources[name] {
			asked = append(asked, name)
		}
	}
	return asked
}

func (p Pod) equal(other Pod) bool {
	return p.Namespace == other.Namespace && p.Name == other.Name && p.Over == other.Over && maps.EqualFunc(p.Asks, other.Asks, slices.Equal)
}

// summarize keeps of a pod what is remembered.
func summarize(pod *corev1.Pod) Pod {
	summary := Pod{
		Namespace: pod.Namespace,
		Name:      pod.Name,
		Over:      pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, container := range containers {
			asked := extendedResources(container.Resources)
			if len(asked) == 0 {
				continue
			}
			if summary.Asks == nil {
				summary.Asks = map[string][]string{}
			}
			summary.Asks[container.Name] = asked
		}
	}
	return summary
}

// extendedResources returns the sorted names of a domain that are asked for with a quantity above zero. Kubernetes' own
// resources have names without a domain.
func extendedResources(requirements corev1.ResourceRequirements) []string {
	var names []string
	for _, list := range []corev1.ResourceList{requirements.Requests, requirements.Limits} {
		for name, quantity := range list {
			if strings.Contains(string(name), "/") && quantity.Sign() > 0 {
				names = append(names, string(name))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
