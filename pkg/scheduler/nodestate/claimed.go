// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Claims knows what ResourceClaims have of the devices of nodes.
type Claims interface {
	// Claimed returns the devices that claims have of the inventory of this version of a node,
	// which is compiled now, by the names that [deviceinfo.DevicesOf] yields; nil for none.
	Claimed(source *v1.Node) map[string]bool
	// InUse says that the inventory of this version is in use, and no other one.
	InUse(source *v1.Node)
	// Forget says that there is no such node.
	Forget(nodeName string)
}

// FollowClaims makes devices that claims have not allocatable, for no pod. It is called before the
// first node is known. The claims do not call the cache.
func (c *Cache) FollowClaims(claims Claims) { c.claims = claims }

// ClaimsChanged brings a node up to date with what claims have of it.
func (c *Cache) ClaimsChanged(ctx context.Context, nodeName string) {
	c.write(nodeName, func(n *node) {
		if current := n.inventory.Load(); current != nil {
			c.use(n, c.renewed(ctx, current, current.source))
		}
	})
}

// use makes an inventory that of a node.
func (c *Cache) use(n *node, inv *inventory) {
	n.inventory.Store(inv)
	if c.claims != nil {
		c.claims.InUse(inv.source)
	}
}

// withholdClaimed makes nothing of claimed devices allocatable.
func withholdClaimed(allocatable sdk.ResourceList, claimed map[string]bool) {
	maps.Copy(allocatable, ofClaimed(maps.All(allocatable), claimed))
}

// withoutClaimed returns an inventory, as the plugins left it, with nothing of claimed devices in
// it: a plugin may add some.
func (c *Cache) withoutClaimed(
	ctx context.Context, devices *allocation.Inventory, claimed map[string]bool,
) (*allocation.Inventory, error) {
	added := ofClaimed(devices.Allocatable(), claimed)
	if len(added) == 0 {
		return devices, nil
	}
	return c.schedulers.WithAllocatable(ctx, devices, added, false)
}

// ofClaimed returns those resources of claimed devices of which there is something, with nothing of
// it.
func ofClaimed(allocatable func(func(sdk.ResourceName, int64) bool), claimed map[string]bool) sdk.ResourceList {
	if len(claimed) == 0 {
		return nil
	}
	none := sdk.ResourceList{}
	for name, quantity := range allocatable {
		if path, err := resource.ParsePath(name); err == nil && quantity > 0 && claimedDevice(path, claimed) != "" {
			none[name] = 0
		}
	}
	return none
}

// claimedDevice returns the claimed device that a resource belongs to, "" for none.
func claimedDevice(path resource.Path, claimed map[string]bool) string {
	for device := range deviceinfo.DevicesOf(path) {
		if claimed[device] {
			return device
		}
	}
	return ""
}

// ClaimedText says that claims have devices of a node like those that a pod requests, such that it
// follows on a number of nodes; "" if they have none. Whether the pod would fit with them is not
// known.
func (c *Cache) ClaimedText(source *v1.Node, request *request.Request) string {
	if c.claims == nil {
		return ""
	}
	_, inv := c.currentFor(source)
	if inv == nil || len(inv.claimed) == 0 {
		return ""
	}
	var paths []resource.Path
	counted := map[string]bool{}
	for name := range inv.devices.Allocatable() {
		path, err := resource.ParsePath(name)
		if err != nil {
			continue
		}
		device := claimedDevice(path, inv.claimed)
		if device != "" && !counted[device] && c.schedulers.RequestsLike(request, name) {
			counted[device] = true
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		return ""
	}
	return fmt.Sprintf("have %d %s that resource claims hold", len(paths), c.nounOf(paths))
}

// HeldNames returns the resources that these pods, which are bound to a node, hold, by the names
// that these had when they were allocated, and those that are reserved. It waits for no change of
// the node.
func (c *Cache) HeldNames(nodeName string, pods []*v1.Pod) []sdk.ResourceName {
	var names []sdk.ResourceName
	add := func(held *sdk.PodInfo) {
		if held == nil {
			return
		}
		for _, container := range held.Containers() {
			for _, from := range container.AllocateFrom {
				names = append(names, from)
			}
		}
	}
	for _, pod := range pods {
		add(c.Held(pod))
	}
	if n := c.find(nodeName); n != nil {
		for _, r := range n.reservations().pods {
			if r.devices != nil {
				add(r.devices.Pod)
			}
		}
	}
	return names
}
