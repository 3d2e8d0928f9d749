// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package request has what one pod requests, as far as the pod alone tells: its containers in
// order, and the rules for what a pod may request. The scheduler enforces them, and kubectl device
// lint shows them to the author of a manifest. All functions are pure and safe for concurrent use.
package request
