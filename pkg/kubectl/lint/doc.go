// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lint finds mistakes in what manifests request of devices, before a scheduler or a node
// refuses the pod: in the annotation KubeDevice/DeviceInfo, which package deviceinfo reads, and in
// limits. It says at which line and column.
//
// It reads pods, the items of lists, and all pod templates of an object of any kind: each mapping
// in it that has a list of containers in its spec. Where the kind is not one of Kubernetes itself,
// a finding begins with the path of the template in the object.
//
// A finding in the manifest alone is an error if the pod cannot get its devices. What is
// compared with a cluster's nodes is a warning, as nodes come and go. All functions are pure and
// safe for concurrent use.
package lint
