// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"math"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Dense turns a list of used quantities into a vector for this tree. Names that the tree lacks,
// masks and negative quantities are left out.
func (tree *DeviceTree) Dense(used types.ResourceList) []int64 {
	vector := make([]int64, len(tree.names))
	tree.Take(vector, used)
	return vector
}

// List turns a vector of used quantities into a list. What is not used is left out.
func (tree *DeviceTree) List(used []int64) types.ResourceList {
	list := types.ResourceList{}
	for i, quantity := range used {
		if quantity != 0 {
			list[tree.names[i]] = quantity
		}
	}
	return list
}

// Take adds what is held to a vector of used quantities. Names that the tree lacks (a device that
// is gone), masks and negative quantities are skipped; a sum beyond int64 stays at the largest
// number, so that it can never look free.
func (tree *DeviceTree) Take(used []int64, held types.ResourceList) {
	for name, quantity := range held {
		if i, ok := tree.index[name]; ok && tree.mode[i] != enum && quantity > 0 {
			used[i] = addCapped(used[i], quantity)
		}
	}
}

// addCapped adds two quantities that are not negative, up to the largest int64.
func addCapped(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
