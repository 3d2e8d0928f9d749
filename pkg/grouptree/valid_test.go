// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func checkValid(tb testing.TB, node *types.NodeInfo, pod *types.PodInfo, spec []Container, inv *Inventory, req *Request, got *Placement) {
}
