// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package critools names what critest is made of, which is a test, so that the module has all that
// it is built from.
package critools

import (
	_ "sigs.k8s.io/cri-tools/pkg/benchmark" // critest's
	_ "sigs.k8s.io/cri-tools/pkg/validate"  // critest's
)
