// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Pod is what the containers of a pod have, or what the pod waits for.
type Pod struct {
	metav1.TypeMeta `json:",inline"`
	Namespace       string `json:"namespace"`
	Name            string `json:"name"`
	UID             string `json:"uid"`
	// Node is the node that the pod is bound to.
	Node  string `json:"node,omitempty"`
	State State  `json:"state"`
	// Since is when the pod was bound; for one that waits, when it was created.
	Since metav1.Time `json:"since"`
	// Message is why the pod waits, in the scheduler's words, why its node refuses it, in that
	// node's words, or why its annotation does not count.
	Message string `json:"message,omitempty"`
	// Containers are those that request or have devices, in the order of the spec, init containers
	// first.
	Containers []Container `json:"containers"`
}

// PodList is several pods.
type PodList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []*Pod `json:"items"`
}

// NewPodList returns a list of pods, which may be nil.
func NewPodList(pods []*Pod) *PodList {
	return &PodList{TypeMeta: TypeMeta("PodList"), Items: append([]*Pod{}, pods...)} // an empty list, not null
}

// Container is what one container requests and has.
type Container struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	// Requests are the extended resources in the container's limits, and what the pod's annotation
	// requests for it.
	Requests map[string]int64 `json:"requests,omitempty"`
	Devices  []Part           `json:"devices,omitempty"`
}

// Part is what a container has of a device.
type Part struct {
	Path string `json:"path"`
	Kind string `json:"kind"`
	ID   string `json:"id"`
	// Resources are in base units.
	Resources map[string]int64 `json:"resources"`
}

// NewPod returns what a pod has or waits for, or nil for one that neither requests nor has devices.
// What requests an extended resource counts as requesting devices: which of them are devices, each
// node decides.
func NewPod(pod *corev1.Pod) *Pod {
	p := &Pod{
		TypeMeta: TypeMeta("Pod"), Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID),
		Node: pod.Spec.NodeName, Since: pod.CreationTimestamp,
	}
	bound := condition(pod, corev1.PodScheduled)
	if bound != nil && bound.Status == corev1.ConditionTrue {
		p.Since = bound.LastTransitionTime
	}
	requests, unreadable := requestsOf(pod)
	if len(requests) == 0 && pod.Annotations[deviceinfo.Annotation] == "" {
		return nil
	}
	held, err := allocationOf(pod, nil)
	had := held != nil && len(held.containers) > 0
	switch why := rejection(pod); {
	case why != "":
		p.State, held, p.Message = Refused, nil, why
	case finished(pod):
		p.State, held = Finished, nil
	case pod.Spec.NodeName == "":
		p.State, held, p.Message = Waiting, nil, whyWaiting(bound)
		if unreadable != nil {
			p.State, p.Message = Unreadable, unreadable.Error()
		}
	case err != nil:
		p.State, p.Message = Unreadable, err.Error()
	case held == nil:
		p.State = Unallocated
	default:
		p.State = Granted
	}
	for _, at := range request.Containers(pod) {
		c := Container{Name: at.Name, State: p.State, Requests: requests[at.Name]}
		if held != nil {
			c.State = held.state(at.Name)
			c.Devices = parts(held.containers[at.Name])
		}
		if len(c.Requests) == 0 && len(c.Devices) == 0 {
			continue
		}
		if held != nil && c.State == Bound && p.State != Refused {
			p.State = Bound
		}
		if refused := refusal(pod, at.Name); refused != "" && p.State != Finished {
			if p.State != Refused {
				p.State, p.Message = Refused, refused
			}
			c.State = Refused
		}
		p.Containers = append(p.Containers, c)
	}
	switch {
	case p.Containers != nil:
		return p
	case p.State == Unreadable || p.State == Finished && had:
		p.Containers = []Container{} // an empty list, not null
		return p
	default:
		return nil // its annotation requests nothing
	}
}

// requestsOf returns what each container of a pod requests, as it was written. The error says why
// the annotation cannot be read; what the limits request is returned all the same.
func requestsOf(pod *corev1.Pod) (map[string]map[string]int64, error) {
	written := &types.PodInfo{}
	var unreadable error
	if value := pod.Annotations[deviceinfo.Annotation]; value != "" {
		if written, unreadable = deviceinfo.DecodePod(value); unreadable != nil {
			written = &types.PodInfo{}
		}
	}
	info, err := deviceinfo.PodRequest(pod, written)
	if err != nil {
		unreadable = err
		if info, err = deviceinfo.PodRequest(pod, &types.PodInfo{}); err != nil {
			return nil, err
		}
	}
	requests := map[string]map[string]int64{}
	for _, containers := range []map[string]types.ContainerInfo{info.InitContainers, info.RunningContainers} {
		for name, container := range containers {
			counts := map[string]int64{}
			for plain, quantity := range container.KubeRequests {
				if resource.IsExtendedResource(plain) && quantity > 0 {
					counts[string(plain)] = quantity
				}
			}
			for request, quantity := range container.Requests {
				counts[string(request)] = quantity
			}
			if len(counts) > 0 {
				requests[name] = counts
			}
		}
	}
	return requests, unreadable
}

// parts returns what a container has, by device.
func parts(held types.ResourceList) []Part {
	var list []Part
	at := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(held)) {
		path, err := resource.ParsePath(name)
		if err != nil {
			continue
		}
		i, ok := at[path.Device()]
		if !ok {
			i = len(list)
			at[path.Device()] = i
			d := newDevice(path)
			list = append(list, Part{Path: d.Path, Kind: d.Kind, ID: d.ID, Resources: map[string]int64{}})
		}
		list[i].Resources[path.Resource()] = held[name]
	}
	slices.SortFunc(list, func(a, b Part) int { return comparePaths(a.Path, b.Path) })
	return list
}

// rejected begins the message of a pod that the kubelet has rejected, for any reason: see rejectPod
// in Kubernetes' pkg/kubelet/kubelet.go.
const rejected = "Pod was rejected: "

// rejection returns why the kubelet has rejected a pod for good, before any of its containers was
// created, or "". A pod that was evicted, or whose container failed, was not rejected.
func rejection(pod *corev1.Pod) string {
	if pod.Status.Phase != corev1.PodFailed || !strings.HasPrefix(pod.Status.Message, rejected) {
		return ""
	}
	return strings.TrimPrefix(pod.Status.Reason+": "+pod.Status.Message, ": ")
}

// refusal returns why the node does not create or start a container that waits for that, or "".
func refusal(pod *corev1.Pod, container string) string {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			waits := list[i].State.Waiting
			if list[i].Name != container || waits == nil {
				continue
			}
			switch waits.Reason {
			case "CreateContainerError", "RunContainerError", "CreateContainerConfigError":
				return strings.TrimSuffix(waits.Reason+": "+waits.Message, ": ")
			}
		}
	}
	return ""
}

// whyWaiting returns what the scheduler says of a pod that it has not bound.
func whyWaiting(bound *corev1.PodCondition) string {
	switch {
	case bound == nil:
		return "no scheduler has tried it yet"
	case bound.Message == "":
		return bound.Reason
	default:
		return bound.Message
	}
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// Deleted returns the pod as it was last, and that it is gone.
func (p *Pod) Deleted() *Pod {
	gone := *p
	gone.State, gone.Message, gone.Containers = Deleted, "", slices.Clone(p.Containers)
	for i := range gone.Containers {
		gone.Containers[i].State = Deleted
	}
	return &gone
}

// Reason returns the message in short: without the number of nodes in front, and without what the
// scheduler says about preemption.
func (p *Pod) Reason() string {
	reason := p.Message
	if p.State != Waiting {
		return reason
	}
	if _, nodes, ok := strings.Cut(reason, " nodes are available: "); ok {
		reason = nodes
	}
	reason, _, _ = strings.Cut(reason, " preemption: ")
	return strings.TrimSuffix(strings.TrimSpace(reason), ".")
}
