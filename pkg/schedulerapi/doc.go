// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package schedulerapi is the scheduler's read API: what it answers over HTTPS to GET of the paths
// below, as JSON, and how it publishes where it serves it. Server and clients share it. Nothing can
// be changed through it. docs/reference/scheduler-api.md has rights and bounds.
//
// openapi.json describes the same in OpenAPI 3. It is made from the types by the test of this
// package; the version in the paths changes with every change that an older client cannot read.
//
// Every scheduler answers, the one that leads and those that stand by: each answer says which it
// is. Errors are a metav1.Status, as those of the API server.
package schedulerapi

import _ "embed" // openapi.json

// Prefix begins every path of the API.
const Prefix = "/devices/v1alpha1/"

// The paths of what is there.
const (
	NodesPath   = Prefix + "nodes"
	PodsPath    = Prefix + "pods"
	ServerPath  = Prefix + "server"
	OpenAPIPath = Prefix + "openapi.json"
)

// The paths of questions about placement, which are asked with POST.
const (
	WhyPath    = Prefix + "why"
	FitPath    = Prefix + "fit"
	WhatIfPath = Prefix + "whatif"
)

//go:embed openapi.json
var openAPI string

// OpenAPI returns the OpenAPI 3 document of the API, in JSON.
func OpenAPI() string { return openAPI }

// The parameters of queries.
const (
	// NameParameter names one object.
	NameParameter = "name"
	// NamespaceParameter is the namespace of the pods.
	NamespaceParameter = "namespace"
	// NodeParameter is the node that the pods hold devices of.
	NodeParameter = "node"
	// LimitParameter is how many items an answer may have, from 1 to MaxLimit, which is the
	// default.
	LimitParameter = "limit"
	// ContinueParameter is what the answer before had in its field of that name.
	ContinueParameter = "continue"
)

// MaxLimit is how many items an answer has at most.
const MaxLimit = 500
