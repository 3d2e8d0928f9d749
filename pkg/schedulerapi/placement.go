// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package schedulerapi

import corev1 "k8s.io/api/core/v1"

// Limits of what is asked about placement.
const (
	// DefaultWithin is how many milliseconds a question may take that does not say so itself.
	DefaultWithin = 5_000
	// MaxWithin is how many it may take at most.
	MaxWithin = 30_000
	// MaxReplicas is how many pods one question may be about.
	MaxReplicas = 1_000
	// MaxChanges is how many changes one question may have.
	MaxChanges = 100
)

// PodName names a pod that exists.
type PodName struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String returns namespace/name.
func (n PodName) String() string { return n.Namespace + "/" + n.Name }

// WhyRequest queries why a pod waits. It is the body of POST why; the answer is a [Why].
type WhyRequest struct {
	Pod PodName `json:"pod"`
	// Within is how many milliseconds the answer may take; 0 stands for DefaultWithin.
	Within int64 `json:"within,omitempty"`
}

// FitRequest queries where pods would go now. It is the body of POST fit; the answer is a
// [Placements].
type FitRequest struct {
	// Namespace is that of the pods.
	Namespace string `json:"namespace"`
	// Template is the pod, with a name in its metadata. What the API server would add by default is
	// added, and the scheduler's name where the policy kubedevice-scheduler-name would add it; what
	// other admission plugins would add is not.
	Template corev1.PodTemplateSpec `json:"template"`
	// Replicas is how many of it there are, one after another; 0 stands for 1.
	Replicas int32 `json:"replicas,omitempty"`
	// Within is how many milliseconds the answer may take; 0 stands for DefaultWithin.
	Within int64 `json:"within,omitempty"`
}

// WhatIfRequest is a FitRequest for a cluster that is changed first, or the same for a pod that
// waits. It is the body of POST whatif; the answer is a [Placements].
type WhatIfRequest struct {
	// Pod is a pod that waits. Without it, Namespace, Template and Replicas say what is placed.
	Pod *PodName `json:"pod,omitempty"`
	FitRequest
	// Changes are made in this order.
	Changes []Change `json:"changes,omitempty"`
}

// Change is one change of the cluster. Exactly one field is set.
type Change struct {
	// Without ends a pod: what it has is free. Nothing takes its place.
	Without *PodName `json:"without,omitempty"`
	// WithNodeLike adds a node that is built like this one, with the pods of its DaemonSets and no
	// others.
	WithNodeLike string `json:"withNodeLike,omitempty"`
	// Cordon makes a node take no more pods, or a device: NODE or NODE/DEVICE, where DEVICE is the
	// device's path, or as much of its end as is unambiguous.
	Cordon string `json:"cordon,omitempty"`
}

// Why says what there is to say about a pod that waits.
type Why struct {
	Pod PodName `json:"pod"`
	// Node is where the pod is bound. Nothing else is set then but Pod and, by kubectl device,
	// Problem.
	Node string `json:"node,omitempty"`
	// Problem says what keeps the pod from every node, if something does, or why the node that it
	// is bound to refuses it.
	Problem string `json:"problem,omitempty"`
	// Nodes is how many nodes there are.
	Nodes int `json:"nodes"`
	// Fits are the nodes on which the pod fits, by name: it will be bound soon.
	Fits []string `json:"fits,omitempty"`
	// Reasons are those of the other nodes, those of most nodes first.
	Reasons []Reason `json:"reasons,omitempty"`
	// Smallest is the smallest change by which the pod fits, if it does not.
	Smallest *Smallest `json:"smallest,omitempty"`
	// Mistakes are those in the pod's annotations for which the scheduler writes the events
	// RequestMistake: parts that have no effect, or not the one that is probably meant. A Why in
	// Placements has none: they are there.
	Mistakes []string `json:"mistakes,omitempty"`
}

// Reason is why a pod does not fit a group of nodes, in the words of the pod's events: they follow
// a number of nodes.
type Reason struct {
	Text  string   `json:"text"`
	Nodes []string `json:"nodes"`
	// EndingHelps says that the pod may fit when other pods end.
	EndingHelps bool `json:"endingHelps,omitempty"`
}

// Placements says where pods would go.
type Placements struct {
	// Fits says that all of them would be placed.
	Fits bool `json:"fits"`
	// Replicas is how many there are, and Placed how many would be placed.
	Replicas int32 `json:"replicas"`
	Placed   int32 `json:"placed"`
	// Pods are those that would be placed, in their order: each sees those before it.
	Pods []Placement `json:"pods,omitempty"`
	// Incomplete says that the time was over after the last of Pods: it is not known whether more
	// would be placed.
	Incomplete bool `json:"incomplete,omitempty"`
	// Why is about the first pod that would wait.
	Why *Why `json:"why,omitempty"`
	// Mistakes are those in the annotations of the pods, as in a Why.
	Mistakes []string `json:"mistakes,omitempty"`
}

// Placement is where one pod would go.
type Placement struct {
	Pod  PodName `json:"pod"`
	Node string  `json:"node"`
	// EquallyGood are the other nodes with the same score, by name: the scheduler takes whichever
	// comes first in its list.
	EquallyGood []string `json:"equallyGood,omitempty"`
	// Containers are those that get devices, by name.
	Containers []ContainerDevices `json:"containers,omitempty"`
}

// ContainerDevices are the devices that a container would get.
type ContainerDevices struct {
	Name    string        `json:"name"`
	Devices []DeviceShare `json:"devices"`
}

// DeviceShare is what a container would get of a device.
type DeviceShare struct {
	// Path is the device's path of levels and instances: gpugrp1/0/gpugrp0/1/gpu/GPU-7f3a.
	Path string `json:"path"`
	// Resource is what it would get of it, and Quantity how much, in base units.
	Resource string `json:"resource"`
	Quantity int64  `json:"quantity"`
}

// Smallest has the smallest change of each kind by which a pod fits. Each was tried on a copy of
// the cluster's state.
type Smallest struct {
	// End has the fewest pods to end, all on one node, and of equally many those of the lowest
	// priority. It is nil if no such pods were found. Pods of DaemonSets, static pods and those of
	// a system priority are not considered.
	End *EndPods `json:"end,omitempty"`
	// Add is the smallest node of which one more would do.
	Add *AddNode `json:"add,omitempty"`
	// Relax are changes of the pod itself, each of which is enough.
	Relax []Relaxation `json:"relax,omitempty"`
	// Complete says that the search came to its end. Otherwise its time or its steps were over:
	// what is here is the best that was found, not the smallest.
	Complete bool `json:"complete"`
	// Steps is how often a node was tried.
	Steps int64 `json:"steps"`
}

// EndPods are pods that would have to end, and where the pod would go then.
type EndPods struct {
	Pods      []EndedPod `json:"pods"`
	Placement Placement  `json:"placement"`
}

// EndedPod is a pod that would have to end.
type EndedPod struct {
	PodName  `json:",inline"`
	Priority int32 `json:"priority"`
}

// AddNode is a node of which one more would do, and where the pod would go then.
type AddNode struct {
	Like      string    `json:"like"`
	Placement Placement `json:"placement"`
}

// Relaxation is a change of a pod by which it fits.
type Relaxation struct {
	// Text says it in words: "without the node selector zone=a".
	Text string `json:"text"`
	// Nodes are where the pod fits then, by name.
	Nodes []string `json:"nodes"`
	// Topology says that the pod gets as many devices as before, and only how they are connected is
	// another.
	Topology bool `json:"topology,omitempty"`
}
