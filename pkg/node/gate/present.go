// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// settleLimit is how long a device pod's container waits for plugins that have not yet told their devices.
const settleLimit = 5 * time.Second

// present demands that the devices are on this node and well, and writes each under the name that it has here. It waits for a
// device whose plugin may not have spoken yet, and for hosted plugins, which may come late.
func (g *Gate) present(ctx context.Context, from types.ResourceLocation) error {
	g.Devices.Await(ctx, from)
	for _, request := range slices.Sorted(maps.Keys(from)) {
		inventory, _ := g.Devices.Inventory()
		if _, known := inventory.Allocatable(from[request]); !known {
			g.settle(ctx)
			inventory, _ = g.Devices.Inventory()
			from[request] = named(maps.Keys(inventory.Node.Capacity), from[request])
		}
		name := from[request]
		quantity, known := inventory.Allocatable(name)
		missing := inventory.Missing(name)
		switch {
		case missing != nil:
			return later(fmt.Errorf("device resource %s of node %q cannot be used now: %w", name, g.NodeName, missing))
		case !known:
			return never(fmt.Errorf("device resource %s is not on node %q (any more); if it does not come back, %s", name, g.NodeName, scheduleAgain))
		case quantity == 0:
			return never(fmt.Errorf("device resource %s of node %q is there but must not be used, it may be unhealthy; "+
				"if it does not recover, %s", name, g.NodeName, scheduleAgain))
		}
	}
	return nil
}

// named returns that of the node's names under which it has the device resource. The groups above a device are not part of what it is: a
// device scheduler may know more levels of them than the node publishes, and a node may number them anew when it starts. A
// name that fits no device, or several, stays.
func named(names iter.Seq[types.ResourceName], name types.ResourceName) types.ResourceName {
	var found []types.ResourceName
	for candidate := range names {
		if grants.SameResource(candidate, name) {
			found = append(found, candidate)
		}
	}
	if len(found) != 1 {
		return name
	}
	return found[0]
}

// settle waits for the plugins' first word.
func (g *Gate) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	select {
	case <-g.Devices.Synced():
	case <-ctx.Done():
	}
}
