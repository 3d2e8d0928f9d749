// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// Pod is the registry's data of one of the node's pods.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// ServiceAccount is the name of the pod's service account. A pod from the file of an earlier
	// release has none until the API server lists it.
	ServiceAccount string `json:"serviceAccount,omitempty"`
	// Containers are the pod's containers in the order of its spec, init containers first. A pod
	// has at least one.
	Containers []Container `json:"containers"`
	// Requests are the extended resources that the pod's containers request, sorted, by the
	// container's name. A pod that requests none has none.
	Requests map[string][]types.ResourceName `json:"asks,omitempty"`
	// Variables are the names of the environment variables that the pod's spec sets, by the
	// container's name. A container that takes some from a ConfigMap or Secret as a whole has no
	// entry. They are not in the file.
	Variables map[string][]string `json:"-"`
	// Counts are how many of each extended resource the pod requests, as the kubelet and the
	// scheduler count them. They are not in the file: only the API server's pods are counted.
	Counts map[string]int64 `json:"-"`
	// Seal is the pod's annotation KubeDevice/Seal, and Allocation its KubeDevice/DeviceInfo, which
	// may have only requests. Both are empty for the mirror pod of a static pod. They are not in
	// the file: only the API server's count.
	Seal       string `json:"-"`
	Allocation string `json:"-"`
	// Failure is the pod's policy for failing devices, and its condition in the API server. It is
	// not in the file: only the API server's value is current.
	Failure Failure `json:"-"`
	// OnShareExceeded is the pod's annotation KubeDevice/OnShareExceeded, empty for a pod without,
	// and Failed are its containers that have last ended with an error. They are not in the file:
	// only the API server's values are current.
	OnShareExceeded string   `json:"-"`
	Failed          []Failed `json:"-"`
	// Tolerations are those of the pod's spec, and Started is the kubelet's start time of the pod.
	// They are not in the file: only the API server's values are current.
	Tolerations []corev1.Toleration `json:"-"`
	Started     time.Time           `json:"-"`
	// Unstarted are the containers that the kubelet reports and never created. They are not in the
	// file: only the API server's status is current.
	Unstarted []string `json:"-"`
	// Ended says that the pod has succeeded or failed: the kubelet starts none of its containers
	// again.
	Ended bool `json:"over,omitempty"`
}

// Failure is the content of a pod's object about failing devices.
type Failure struct {
	// Policy is the pod's annotation KubeDevice/OnDeviceFailure, and GracePeriod its
	// KubeDevice/DeviceFailureGracePeriod; both are empty for a pod without.
	Policy, GracePeriod string
	// Status, Reason and Message are those of the pod's condition DevicesHealthy; all are empty for
	// a pod without.
	Status, Reason, Message string
	// Terminating says that the pod has a deletion timestamp.
	Terminating bool
	// GraceSeconds is how long a container of the pod may take to end.
	GraceSeconds int64
}

// Failed is a container that has ended with an error.
type Failed struct {
	Container string
	// ExitCode is not 0, and At when the container has ended.
	ExitCode int32
	At       time.Time
}

// Restarts reports whether the kubelet restarts the container after any exit code.
func (p Pod) Restarts(container string) bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool { return c.Name == container && c.Restarts })
}

// Container is one container of a pod's spec.
type Container struct {
	Name string `json:"name"`
	// Init says that it is one of the spec's init containers, and Always that it is a restartable
	// one of them (a sidecar).
	Init   bool `json:"init,omitempty"`
	Always bool `json:"always,omitempty"`
	// Restarts says that the kubelet restarts it after any exit code. It is not in the file: only
	// the API server's value is current.
	Restarts bool `json:"-"`
}

// InitOrder returns the names of the pod's init containers, including sidecars, in starting order.
func (p Pod) InitOrder() []string {
	var order []string
	for _, container := range p.Containers {
		if container.Init {
			order = append(order, container.Name)
		}
	}
	return order
}

// BoundTo returns the known data of the pod, as bound to the node.
func (p Pod) BoundTo(node string) deviceinfo.BoundPod {
	bound := deviceinfo.BoundPod{Name: p.Name, NodeName: node}
	for _, container := range p.Containers {
		if container.Init && !container.Always {
			bound.InitContainers = append(bound.InitContainers, container.Name)
		} else {
			bound.RunningContainers = append(bound.RunningContainers, container.Name)
		}
	}
	return bound
}

// RequestsAny reports whether any container of the pod requests one of the resources.
func (p Pod) RequestsAny(resources map[types.ResourceName]bool) bool {
	for _, requested := range p.Requests {
		if slices.ContainsFunc(requested, func(name types.ResourceName) bool { return resources[name] }) {
			return true
		}
	}
	return false
}

// RequestsOther reports whether any container of the pod requests an extended resource other than
// the resources.
func (p Pod) RequestsOther(resources map[types.ResourceName]bool) bool {
	for _, requested := range p.Requests {
		if slices.ContainsFunc(requested, func(name types.ResourceName) bool { return !resources[name] }) {
			return true
		}
	}
	return false
}

// Variables are the environment variables that a pod sets in a container.
type Variables struct {
	set   map[string]bool
	known bool
}

// Sets reports whether the pod sets the variable, or may. Its time does not depend on how many
// variables the pod sets.
func (v Variables) Sets(variable string) bool { return !v.known || v.set[variable] }

// VariablesOf returns the variables that the pod sets in a container.
func (p Pod) VariablesOf(container string) Variables {
	names, known := p.Variables[container]
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return Variables{set: set, known: known}
}

func (p Pod) equal(other Pod) bool {
	return p.Namespace == other.Namespace && p.Name == other.Name &&
		p.ServiceAccount == other.ServiceAccount && p.Ended == other.Ended &&
		slices.Equal(p.Containers, other.Containers) && maps.EqualFunc(p.Requests, other.Requests, slices.Equal) &&
		maps.EqualFunc(p.Variables, other.Variables, slices.Equal) && maps.Equal(p.Counts, other.Counts) &&
		p.Seal == other.Seal && p.Allocation == other.Allocation &&
		p.Failure == other.Failure && p.OnShareExceeded == other.OnShareExceeded &&
		slices.EqualFunc(p.Failed, other.Failed, Failed.equal) &&
		slices.Equal(p.Unstarted, other.Unstarted) && p.Started.Equal(other.Started) &&
		apiequality.Semantic.DeepEqual(p.Tolerations, other.Tolerations)
}

// summarize returns the registry's data of a pod.
func summarize(pod *corev1.Pod) Pod {
	summary := Pod{
		Namespace: pod.Namespace,
		Name:      pod.Name,
		// It is empty in a cluster without the admission plugin for service accounts.
		ServiceAccount: cmp.Or(pod.Spec.ServiceAccountName, "default"),
		Ended:          pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
	}
	summary.add(pod.Spec.InitContainers, true, pod.Spec.RestartPolicy)
	summary.add(pod.Spec.Containers, false, pod.Spec.RestartPolicy)
	summary.Counts = countsOf(pod)
	summary.Failure = failureOf(pod)
	summary.OnShareExceeded = pod.Annotations[deviceinfo.OnShareExceededAnnotation]
	summary.Failed = failedOf(pod)
	summary.Unstarted = unstarted(pod)
	summary.Tolerations = pod.Spec.Tolerations
	if pod.Status.StartTime != nil {
		summary.Started = pod.Status.StartTime.Time
	}
	if !isMirror(pod) {
		summary.Seal = pod.Annotations[seal.Annotation]
		summary.Allocation = pod.Annotations[deviceinfo.Annotation]
	}
	return summary
}

// isMirror reports whether the pod stands for a static pod, which no scheduler has seen.
func isMirror(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror
}

func failureOf(pod *corev1.Pod) Failure {
	f := Failure{
		Policy:      pod.Annotations[deviceinfo.OnDeviceFailureAnnotation],
		GracePeriod: pod.Annotations[deviceinfo.DeviceFailureGracePeriodAnnotation],
		Terminating: pod.DeletionTimestamp != nil,
		// The API server sets it for every pod.
		GraceSeconds: ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds),
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == deviceinfo.DevicesHealthyCondition {
			f.Status, f.Reason, f.Message = string(c.Status), c.Reason, c.Message
		}
	}
	return f
}

func (f Failed) equal(other Failed) bool {
	return f.Container == other.Container && f.ExitCode == other.ExitCode && f.At.Equal(other.At)
}

// failedOf returns the containers that have last ended with an error: those that have not been
// started again, and those that have.
func failedOf(pod *corev1.Pod) (failed []Failed) {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			ended := cmp.Or(list[i].State.Terminated, list[i].LastTerminationState.Terminated)
			if ended != nil && ended.ExitCode != 0 {
				failed = append(failed, Failed{list[i].Name, ended.ExitCode, ended.FinishedAt.Time})
			}
		}
	}
	return failed
}

// restarts reports whether the kubelet restarts a container after any exit code. Restart rules may
// exclude some codes.
func restarts(container *corev1.Container, initial bool, ofPod corev1.RestartPolicy) bool {
	if len(container.RestartPolicyRules) > 0 {
		return false
	}
	if initial {
		return deviceinfo.IsSidecar(container)
	}
	own := corev1.ContainerRestartPolicy(ofPod)
	return ptr.Deref(container.RestartPolicy, own) == corev1.ContainerRestartPolicyAlways
}

// add adds containers of the pod's spec.
func (p *Pod) add(containers []corev1.Container, initial bool, policy corev1.RestartPolicy) {
	for i := range containers {
		container := &containers[i]
		p.Containers = append(p.Containers, Container{
			Name: container.Name, Init: initial, Always: initial && deviceinfo.IsSidecar(container),
			Restarts: restarts(container, initial, policy),
		})
		if requested := extendedResources(container.Resources); len(requested) > 0 {
			if p.Requests == nil {
				p.Requests = map[string][]types.ResourceName{}
			}
			p.Requests[container.Name] = requested
		}
		if len(container.EnvFrom) > 0 {
			continue
		}
		if p.Variables == nil {
			p.Variables = map[string][]string{}
		}
		p.Variables[container.Name] = variablesOf(container)
	}
}

func variablesOf(container *corev1.Container) []string {
	var names []string
	for _, env := range container.Env {
		names = append(names, env.Name)
	}
	return names
}

// extendedResources returns the sorted names of the requested extended resources with a quantity
// above zero.
func extendedResources(requirements corev1.ResourceRequirements) []types.ResourceName {
	var names []types.ResourceName
	for _, list := range []corev1.ResourceList{requirements.Requests, requirements.Limits} {
		for name, quantity := range list {
			if isExtended(name) && quantity.Sign() > 0 {
				names = append(names, types.ResourceName(name))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func isExtended(name corev1.ResourceName) bool {
	return resource.IsExtendedResource(types.ResourceName(name))
}
