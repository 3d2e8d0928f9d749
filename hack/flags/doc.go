// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package flags has the test that writes docs/reference/flags.md from the commands of the programs.
package flags
