// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// With this file the compiler accepts a function that has no body, see manager_test.go.
