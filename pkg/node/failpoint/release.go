//go:build !failpoint

// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package failpoint

// Enabled says whether this program can reach failpoints.
const Enabled = false

// Reach does nothing in a release.
func Reach(Point) {}
