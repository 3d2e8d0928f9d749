// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"github.com/kubedevice/kubedevice/pkg/cache"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
)

// state is what was computed last for a node. It is immutable.
type state struct {
	version
	holders
	devices *allocation.Node // without the nominated pods
	// variants are the same for pods that tolerate taints or choose devices, by the inventory's
	// variant; nil for a node without tainted devices, before a pod has chosen any.
	variants *cache.Cache[*allocation.Inventory, *allocation.Node]
}

// version identifies a state of a node of the scheduler's snapshot.
//
// The NodeInfo's generation alone does not: when a pod group is scheduled, the snapshot gets and
// loses assumed pods and keeps its generation. Those that hold devices have a reservation, so the
// epoch distinguishes such states; the number of pods distinguishes those between a pod's being
// assumed and its reservation.
type version struct {
	generation int64
	pods       int
	epoch      uint64 // of the reservations
	revision   uint64 // of the inventory, which no two nodes have in common
}
