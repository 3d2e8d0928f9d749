// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devices is what kubectl device shows: the devices of nodes with their holders, what the
// containers of pods have, and how much of each kind of device is in use. It is made of the objects
// that the API server has, and verifies nothing.
//
// # Which annotation counts
//
// What a pod holds is what its node reports of it in the annotation KubeDevice/Holders, if the node
// reports it, and else the allocation in the pod's own annotation KubeDevice/DeviceInfo. Nodes
// report adopted pods, and those without a valid seal where seals are looked at, so it is what the
// scheduler counts, but for forged allocations: no seal is verified here. Pods that have ended hold
// nothing.
//
// # Names
//
// A device keeps its ID when a node numbers its groups again, and a plugin of the scheduler may put
// devices into more groups than their node publishes. So what a pod holds is first looked for under
// its full name, and then by kind and ID, if the node has one such device.
//
// The exported types are the JSON form of the command's output, version [APIVersion]. All functions
// are pure and safe for concurrent use; they change no argument and share nothing with the result
// that is written later.
package devices

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// APIVersion is the version of the JSON form.
const APIVersion = "cli.kubedevice.io/v1alpha1"

// TypeMeta is apiVersion and kind of an object of this package.
func TypeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: APIVersion, Kind: kind}
}

// State says what is known of devices that a container has.
type State string

// The states of a pod and of each of its containers.
const (
	// Waiting: the pod has no node.
	Waiting State = "Waiting"
	// Bound: the allocation is in the pod's annotation. The node reports nothing of it yet.
	Bound State = "Bound"
	// Granted: the node reports that the container has started, which it does with its devices
	// alone, or that the pod holds devices.
	Granted State = "Granted"
	// Unallocated: the pod requests devices, is bound and has no allocation. The kubelet of its
	// node counts what it requests, or another scheduler bound it.
	Unallocated State = "Unallocated"
	// Unreadable: the pod's annotation cannot be read, or is that of another pod or node.
	Unreadable State = "Unreadable"
	// Refused: the node has refused the pod at its admission, or refuses to create the container.
	Refused State = "Refused"
	// Finished: the pod has ended and holds nothing.
	Finished State = "Finished"
	// Deleted: the pod is gone, or requests no devices any more. Only a watch reports this.
	Deleted State = "Deleted"
)
