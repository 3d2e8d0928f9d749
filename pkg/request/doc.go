// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package request has what one pod requests, as far as the pod alone shows: a [Request] with the
// containers in order and a [Key] that pods with the same request share, a [Reader] that reads each
// version of a pod once, and the rules for what a pod may request. The scheduler enforces them, and
// kubectl device lint shows them to the author of a manifest. All functions are pure; they and all
// types are safe for concurrent use.
package request
