//go:build !unbounded

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nribound

// enforced says that the checks of this package refuse anything. In releases they do: a program
// that is built with the tag unbounded shows what a runtime does without them.
const enforced = true
