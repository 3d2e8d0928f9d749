// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Pod is what is remembered of one of the node's pods.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Containers are the pod's containers in the order of its spec, init containers first. A pod has at least one.
	Containers []Container `json:"containers"`
	// Asks are the extended resources that the pod's containers ask for, by the container's name. A pod that asks for none
	// has none.
	Asks map[string][]string `json:"asks,omitempty"`
	// Counts are how many of each extended resource the pod asks for, as the kubelet and the scheduler count them. It is not
	// written down: only the API server's pods are counted.
	Counts map[string]int64 `json:"-"`
	// Over says that the pod has succeeded or failed: none of its containers will be started again.
	Over bool `json:"over,omitempty"`
}

// Container is one container of a pod's spec.
type Container struct {
	Name string `json:"name"`
	// Init says that it is one of the spec's init containers, and Always that it is a restartable one of them (a sidecar).
	Init   bool `json:"init,omitempty"`
	Always bool `json:"always,omitempty"`
}

// InitOrder returns the names of the pod's init containers, sidecars included, in the order in which they start.
func (p Pod) InitOrder() []string {
	var order []string
	for _, container := range p.Containers {
		if container.Init {
			order = append(order, container.Name)
		}
	}
	return order
}

// On returns the pod as far as it is known, bound to the node and with the annotations, for those who need all of a pod.
func (p Pod) On(node string, annotations map[string]string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.Annotations, pod.Spec.NodeName = p.Namespace, p.Name, annotations, node
	always := corev1.ContainerRestartPolicyAlways
	for _, known := range p.Containers {
		container := corev1.Container{Name: known.Name}
		if known.Always {
			container.RestartPolicy = &always
		}
		if known.Init {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
		} else {
			pod.Spec.Containers = append(pod.Spec.Containers, container)
		}
	}
	return pod
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

// AsksForOthers reports whether any container of the pod asks for an extended resource that is none of the resources.
func (p Pod) AsksForOthers(resources map[string]bool) bool {
	for container, all := range p.Asks {
		if len(p.ContainerAsksFor(container, resources)) < len(all) {
			return true
		}
	}
	return false
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
	return p.Namespace == other.Namespace && p.Name == other.Name && p.Over == other.Over &&
		slices.Equal(p.Containers, other.Containers) && maps.EqualFunc(p.Asks, other.Asks, slices.Equal) && maps.Equal(p.Counts, other.Counts)
}

// summarize keeps of a pod what is remembered.
func summarize(pod *corev1.Pod) Pod {
	summary := Pod{
		Namespace: pod.Namespace,
		Name:      pod.Name,
		Over:      pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
	}
	summary.add(pod.Spec.InitContainers, true)
	summary.add(pod.Spec.Containers, false)
	summary.Counts = countsOf(pod)
	return summary
}

// add adds containers of the pod's spec.
func (p *Pod) add(containers []corev1.Container, initial bool) {
	for i := range containers {
		container := &containers[i]
		p.Containers = append(p.Containers, Container{Name: container.Name, Init: initial, Always: initial && deviceinfo.IsSidecar(container)})
		asked := extendedResources(container.Resources)
		if len(asked) == 0 {
			continue
		}
		if p.Asks == nil {
			p.Asks = map[string][]string{}
		}
		p.Asks[container.Name] = asked
	}
}

// extendedResources returns the sorted names of extended resources that are asked for with a quantity above zero.
func extendedResources(requirements corev1.ResourceRequirements) []string {
	var names []string
	for _, list := range []corev1.ResourceList{requirements.Requests, requirements.Limits} {
		for name, quantity := range list {
			if isExtended(name) && quantity.Sign() > 0 {
				names = append(names, string(name))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func isExtended(name corev1.ResourceName) bool {
	return resource.IsExtendedResource(types.ResourceName(name))
}
