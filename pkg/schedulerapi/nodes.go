// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package schedulerapi

import "time"

// NodeList is one answer about nodes.
type NodeList struct {
	// Scheduler is who answers.
	Scheduler Instance `json:"scheduler"`
	// Items are in the order of their names.
	Items []Node `json:"items"`
	// Continue requests those that follow, with the parameter of that name. It is absent in the
	// last answer. Each answer is of its own moment.
	Continue string `json:"continue,omitempty"`
}

// Node is a node's devices.
type Node struct {
	Name string `json:"name"`
	// Problem says why the node's devices cannot be scheduled. There are no devices then.
	Problem string   `json:"problem,omitempty"`
	Devices []Device `json:"devices,omitempty"`
}

// Health says whether pods may get a device.
type Health string

// The healths of a device.
const (
	Healthy Health = "Healthy"
	// Unhealthy: the node has the device, and none of its resources are allocatable.
	Unhealthy Health = "Unhealthy"
)

// Device is one device, or one group of devices that has resources of its own.
type Device struct {
	// Path is its place in the node's tree, of levels and instances:
	// gpugrp1/0/gpugrp0/1/gpu/GPU-7f3a. It is empty for the resources of the node itself.
	Path string `json:"path"`
	// Kind is its innermost level, such as gpu, or the extended resource of a kubelet device
	// plugin. It is "node" for the node itself.
	Kind string `json:"kind"`
	// ID is the name that its plugin gives it.
	ID     string `json:"id"`
	Health Health `json:"health"`
	// Taints are those that administrators gave it, and what it is part of. Only pods that tolerate
	// all of them get it.
	Taints []Taint `json:"taints,omitempty"`
	// Attributes are bit masks by name, such as enumType. Requests are matched with them, and use
	// nothing of them.
	Attributes map[string]int64 `json:"attributes,omitempty"`
	// DeviceAttributes are what its plugin says of it, by name, as in the node's annotation
	// KubeDevice/Attributes: strings, whole numbers, booleans, and versions as
	// {"version":"9.0.0"}. What is not known is absent. Requests are not matched with them.
	DeviceAttributes map[string]any `json:"deviceAttributes,omitempty"`
	// Resources are what it has, by name.
	Resources []Resource `json:"resources,omitempty"`
}

// Taint is a taint of a device, with the words of a node's taints.
type Taint struct {
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
	// Effect is NoSchedule or NoExecute.
	Effect string `json:"effect"`
	// TimeAdded is when it was added, if that is known.
	TimeAdded time.Time `json:"timeAdded,omitzero"`
}

// Resource is one resource of a device. Quantities are in base units: devices or bytes.
type Resource struct {
	Name string `json:"name"`
	// Allocatable is what pods may have of it, and Used what they and others have.
	Allocatable int64 `json:"allocatable"`
	Used        int64 `json:"used"`
	// Holders are the pods that hold some of it.
	Holders []Holder `json:"holders,omitempty"`
}

// Holder is a pod that holds a quantity of a resource.
type Holder struct {
	// Namespace is empty for a pod that is not there any more.
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	// Quantity is in base units.
	Quantity int64 `json:"quantity"`
	// Enforcement is what holds the pod to that: hardware for all there is of the resource, and
	// otherwise what the node says in its annotation KubeDevice/ShareEnforcement, such as policed,
	// or counted.
	Enforcement string `json:"enforcement"`
	// Reserved says that the pod is not bound yet, or not known to be.
	Reserved bool `json:"reserved,omitempty"`
}
