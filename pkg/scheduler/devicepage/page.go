// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devicepage serves /debug/devices, the page that shows every node's devices with their
// holders and, with ?pod=namespace/name, on which nodes a pod fits and why not on the others. It is
// read by people as text and, with ?output=json, by programs. What it shows is put together by
// others: see Source.
package devicepage

import "context"

// Path is the page's address.
const Path = "/debug/devices"

// Source is what the page shows. Its methods are called for each request, possibly at the same
// time, and look at the cluster as it is at that moment.
type Source interface {
	// Nodes returns all nodes by name, or the one of that name; none when there is none of that
	// name.
	Nodes(ctx context.Context, name string) ([]Node, error)
	// Pod returns what there is to say about a pod. It returns nil when there is no such pod.
	Pod(ctx context.Context, namespace, name string) (*Pod, error)
}

// Node is a node's devices.
type Node struct {
	Name string `json:"name"`
	// Problem says why the node's devices cannot be scheduled. There are no devices then.
	Problem string   `json:"problem,omitempty"`
	Devices []Device `json:"devices,omitempty"`
}

// Device is one device, or one group of devices that has resources of its own.
type Device struct {
	// Name is its path of levels and instances: gpugrp1/0/gpugrp0/1/gpu/GPU-7f3a.
	Name      string     `json:"name"`
	Resources []Resource `json:"resources"`
}

// Resource is one resource of a device. Quantities are in base units.
type Resource struct {
	Name        string   `json:"name"`
	Allocatable int64    `json:"allocatable"`
	Used        int64    `json:"used"`
	Holders     []Holder `json:"holders,omitempty"`
}

// Holder is a pod that holds a quantity of a resource.
type Holder struct {
	// Pod is the pod's namespace and name.
	Pod      string `json:"pod"`
	UID      string `json:"uid"`
	Quantity int64  `json:"quantity"`
	// Reserved says that the pod is not bound yet, or not known to be.
	Reserved bool `json:"reserved,omitempty"`
}

// Pod is what there is to say about one pod.
type Pod struct {
	// Name is the pod's namespace and name.
	Name string `json:"name"`
	// Node is the node that the pod is bound to.
	Node string `json:"node,omitempty"`
	// Problem says why there are no verdicts, for a pod that is not bound.
	Problem string `json:"problem,omitempty"`
	// Verdicts are those of all nodes, by name, for a pod that waits. They are about devices alone:
	// a node on which the pod fits may still be ruled out by something else.
	Verdicts []Verdict `json:"verdicts,omitempty"`
}

// Verdict says whether a pod fits a node.
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
