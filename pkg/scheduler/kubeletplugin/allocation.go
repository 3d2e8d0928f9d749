// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import "github.com/kubedevice/kubedevice/pkg/sdk/types"

// podAllocation is the allocation of a node's devices to one pod.
type podAllocation struct {
	containers  []*container // that request devices of the node, in the request's order
	excluded    map[deviceID]bool
	pool        pool
	counted     map[types.ResourceName]int // the most devices that the pod uses at any time
	bounded     bool                       // the pod must not hold more than that
	steps       int                        // of the search that is under way
	inspections int                        // of devices and their holders, in all
	limit       int                        // of inspections
}

// stepLimit is how many NUMA sets or devices a search tries for one pod on one node.
const stepLimit = 1000
