// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"math"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Dense converts a list of used quantities to a vector for this tree. It ignores names that the
// tree lacks, masks and negative quantities.
func (tree *DeviceTree) Dense(used types.ResourceList) []int64 {
	vector := make([]int64, len(tree.names))
	tree.Take(vector, used)
	return vector
}

// List converts a vector of used quantities to a list without zeros.
func (tree *DeviceTree) List(used []int64) types.ResourceList {
	list := types.ResourceList{}
	for i, quantity := range used {
		if quantity != 0 {
			list[tree.names[i]] = quantity
		}
	}
	return list
}

// Take adds held quantities to a vector of used quantities. It skips names that the tree lacks (a
// removed device), masks and negative quantities. A sum beyond int64 stops at the largest number,
// so that an overflow does not make a resource seem free.
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
