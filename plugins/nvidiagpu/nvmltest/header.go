// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build nvml_header

package nvmltest

// The fake library is built against this module's nvml.h. The import, which no build has, keeps its
// version in go.mod.
import _ "github.com/NVIDIA/go-nvml/pkg/nvml"
