// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lint finds mistakes in what manifests request of devices, before a scheduler or a node
// refuses the pod: in the annotation KubeDevice/DeviceInfo, which package deviceinfo reads, and in
// limits. It says at which line and column.
//
// It looks at each pod and each pod template, wherever an object has one: at spec.template as
// Deployments, StatefulSets, DaemonSets, ReplicaSets, Jobs and ReplicationControllers have it, at
// spec.jobTemplate.spec.template as CronJobs do, and at template; and at the items of lists.
//
// A finding in the manifest alone is an error if the pod cannot get its devices. What is
// compared with a cluster's nodes is a warning, as nodes come and go. All functions are pure and
// safe for concurrent use.
package lint
