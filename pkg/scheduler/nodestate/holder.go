// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// holder is a pod that holds devices, and the annotation that says so.
type holder struct {
	*allocation.Holder
	annotation string             // empty when the node reports what the pod holds
	reported   *deviceinfo.Holder // by the node, or nil
}

// holders are the pods of a NodeInfo, as far as devices are concerned.
type holders struct {
	// present are the pods that hold devices.
	present map[types.UID]holder
	// ending are those of them that are being deleted.
	ending []types.UID
	// nominated are pods that are not on the node, but listed because they may come.
	nominated []*v1.Pod
	// bound are the pods that have a reservation and are listed as bound.
	bound []types.UID
	// unlisted are pods that have a reservation, but are not listed.
	unlisted map[types.UID]holder
}

// heldByEnding returns what the pods hold that are being deleted, by the names of an inventory.
func (h *holders) heldByEnding(inventory *allocation.Inventory) sdk.ResourceList {
	held := sdk.ResourceList{}
	for _, uid := range h.ending {
		h.present[uid].ByNamesOf(inventory).AddTo(held)
	}
	return held
}

// inOrder returns the holders in the order of their UIDs.
func inOrder(holders map[types.UID]holder) []*allocation.Holder {
	ordered := make([]*allocation.Holder, 0, len(holders))
	for _, uid := range slices.Sorted(maps.Keys(holders)) {
		ordered = append(ordered, holders[uid].Holder)
	}
	return ordered
}
