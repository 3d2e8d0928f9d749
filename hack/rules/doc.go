// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rules holds the rules that all code of the repository keeps, as tests: imports point one
// way, every package says what it is for, every file carries its licence.
package rules
