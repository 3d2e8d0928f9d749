//go:build unbounded

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nribound

// enforced says that the checks of this package refuse nothing.
const enforced = false
