// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package schedulerapi

import "time"

// PodList is one answer about pods: those that hold devices or wait for some.
type PodList struct {
	// Scheduler is who answers.
	Scheduler Instance `json:"scheduler"`
	// Items are in the order of namespaces and names.
	Items []Pod `json:"items"`
	// Continue requests those that follow, with the parameter of that name. It is absent in the
	// last answer. Each answer is of its own moment.
	Continue string `json:"continue,omitempty"`
}

// State says how far a pod is.
type State string

// The states of a pod.
const (
	// Waiting: it has no devices, and no node.
	Waiting State = "Waiting"
	// Reserved: the scheduler has chosen its devices, and is binding it. Only the one that leads
	// knows that.
	Reserved State = "Reserved"
	// Bound: it has a node, and devices there.
	Bound State = "Bound"
)

// Pod is a pod that holds devices or waits for some.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	State     State  `json:"state"`
	// Node is where it holds devices.
	Node string `json:"node,omitempty"`
	// SchedulerName is who binds it, or has bound it.
	SchedulerName string `json:"schedulerName"`
	// Since is when it was bound, or created if it is not bound.
	Since time.Time `json:"since,omitzero"`
	// Allocations are what its containers have, by container and device.
	Allocations []Allocation `json:"allocations,omitempty"`
	// Reason is why it waits, in the words of its last FailedScheduling event, or why its request
	// cannot be read.
	Reason string `json:"reason,omitempty"`
	// Verdicts are those of all nodes, by name, for a pod that waits and was named in the query.
	// They are about devices alone: a node on which the pod fits may still be ruled out by
	// something else.
	Verdicts []Verdict `json:"verdicts,omitempty"`
}

// Allocation is what a container has of a device.
type Allocation struct {
	Container string `json:"container"`
	// Device is the path of the device.
	Device string `json:"device"`
	// Resources are quantities by name, in base units.
	Resources map[string]int64 `json:"resources"`
}

// Verdict says whether the devices of a node fit a pod.
type Verdict struct {
	Node string `json:"node"`
	Fits bool   `json:"fits"`
	// Score is from 0 (bad) to 1 (good).
	Score float64 `json:"score,omitempty"`
	// Kubelet says that nothing of what the pod requests is a device on the node: the kubelet
	// counts it, and other plugins of the scheduler know whether it is enough.
	Kubelet bool `json:"kubelet,omitempty"`
	// Reason says why the pod does not fit.
	Reason string `json:"reason,omitempty"`
	// Preemptible says that evicting pods could make the pod fit.
	Preemptible bool `json:"preemptible,omitempty"`
}
