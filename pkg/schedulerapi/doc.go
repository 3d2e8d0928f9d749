// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package schedulerapi has the types of what the scheduler answers over HTTPS, as JSON. Server and
// clients share it.
package schedulerapi
