// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podrequest has the rules for what a pod may request that can be told from the pod alone.
// The scheduler enforces them, and kubectl device lint shows them to the author of a manifest. All
// functions are pure and safe for concurrent use.
package podrequest
