// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// nodeKey identifies the state of a node.
type nodeKey [sha256.Size]byte

// contentOf returns the key of all that a plugin sees of a node but its name.
func contentOf(node *types.NodeInfo) nodeKey {
	var e request.Encoder
	for _, list := range []types.ResourceList{node.Capacity, node.Allocatable, node.Used, node.KubeCap,
		node.KubeAlloc} {
		request.EncodeQuantities(&e, list)
	}
	request.EncodeQuantities(&e, node.Scorer)
	return sha256.Sum256(e)
}

// stateOf returns the key of all that the group scheduler sees of a node but the devices' names.
func stateOf(tree *grouptree.DeviceTree, used []int64) nodeKey {
	shape := tree.Shape()
	c := append(make([]byte, 0, len(shape)+8*len(used)), shape[:]...)
	for _, quantity := range used {
		c = binary.LittleEndian.AppendUint64(c, uint64(quantity))
	}
	return sha256.Sum256(c)
}
