// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package logkey has the keys of what kube-scheduler and kubecri log: one key for one thing, so
// that one search finds a pod, a device resource or a plugin in the logs of both programs. Keys
// that upstream's components have too are named as there.
package logkey

// Objects of the cluster.
const (
	Node            = "node"
	Pod             = "pod"
	PodUID          = "podUID"
	Pods            = "pods" // how many
	Container       = "container"
	Containers      = "containers" // their names
	Policy          = "policy"     // of admission
	Variables       = "variables"  // of a policy, those that it lacks
	Claim           = "claim"
	Lease           = "lease"
	ResourceVersion = "resourceVersion"
	Server          = "server" // the API server: its address or version
)

// Devices, and who has them.
const (
	Resource          = "resource"
	Resources         = "resources"
	ExtendedResources = "extendedResources" // with how many of each
	Devices           = "devices"           // how many
	LeftOut           = "leftOut"           // the paths of devices whose attributes are not published
	Healthy           = "healthy"           // how many of them
	Allocation        = "allocation"
	Generation        = "generation" // of an allocation
	Conflict          = "conflict"   // whether two claim one resource
	Conflicts         = "conflicts"  // who claims what
	Keys              = "keys"       // key IDs by which seals are verified
	Signer            = "signer"     // the key ID that signs
)

// Plugins, and calls of them.
const (
	Plugin         = "plugin"
	Kind           = "kind"  // of plugin: of the scheduler or of devices
	Build          = "build" // that a plugin file was made by
	GroupScheduler = "groupScheduler"
	Method         = "method"
	Blamed         = "blamed" // the request for which the call was made
	Stack          = "stack"
	Kept           = "kept" // how long the devices of a plugin that is gone are kept
)

// Files and connections.
const (
	File       = "file"
	Directory  = "directory"
	Kubeconfig = "kubeconfig"
	Endpoint   = "endpoint"  // a Unix socket that is served or called
	Inherited  = "inherited" // whether the socket is the service manager's
	Upstream   = "upstream"  // the container runtime's endpoint
	Kubelet    = "kubelet"   // the kubelet's endpoint
	Address    = "address"   // that HTTP is served at
	TLS        = "tls"
	Path       = "path" // of an HTTP request
	Remote     = "remote"
	Validator  = "validator" // whether the runtime refuses containers that lack an NRI plugin
	Honoured   = "honoured"  // whether the runtime injects CDI devices
)

// What happened, and what follows.
const (
	Reason     = "reason"
	Code       = "code"    // of gRPC
	Problem    = "problem" // a sentence, next to a reason of one word
	NextStep   = "nextStep"
	Severity   = "severity"
	Outcome    = "outcome"
	TookEffect = "tookEffect" // whether a binding without an answer did
	Steps      = "steps"      // of a search
	Found      = "found"
	SilentFor  = "silentFor" // how long the same is not logged again
	Limit      = "limit"     // how long something may take
	Flag       = "flag"
	SealMode   = "sealMode"
	Stated     = "stated"     // the seal mode that the keys state
	Field      = "field"      // of a configuration
	Overridden = "overridden" // the value of a field in the file where a flag wins
	Bytes      = "bytes"
)
