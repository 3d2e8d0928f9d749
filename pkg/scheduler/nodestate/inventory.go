// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// inventory is what one version of a Node object says of the node's devices, compiled. It is immutable.
type inventory struct {
	source   *v1.Node
	revision uint64
	devices  *dispatch.Inventory
	plain    []sdk.ResourceName
	err      error // instead of devices
	retry    bool  // err is a plugin's, which may answer the next time
}

// Observe brings what is known of the node up to date. Calling it is never needed for correctness, since Of does the
// same; it lets plugins that compare nodes know all of them before the first pod comes.
func (c *Cache) Observe(ctx context.Context, source *v1.Node) {
	c.sync(ctx, source)
}

// Forget drops what is known of a node that is gone. Reservations on it stay until their pods go: the node may come back.
func (c *Cache) Forget(ctx context.Context, name string) {
	n := c.node(name)
	n.syncing.Lock()
	defer n.syncing.Unlock()
	if old := n.inventory.Swap(nil); old != nil {
		c.recount(old.plain, nil)
		c.schedulers.RemoveNode(ctx, name)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.reserved) == 0 {
		c.nodes.CompareAndDelete(name, n)
	}
}

// sync returns the inventory of this version of the Node, or of a newer one that is known already.
func (c *Cache) sync(ctx context.Context, source *v1.Node) *inventory {
	n := c.node(source.Name)
	if current := n.inventory.Load(); current.covers(source) {
		return current
	}
	n.syncing.Lock()
	defer n.syncing.Unlock()
	current := n.inventory.Load()
	if current.covers(source) {
		return current
	}
	next := &inventory{source: source}
	if current != nil && !current.retry && sameDevices(current.source, source) {
		next.revision, next.devices, next.plain, next.err = current.revision, current.devices, current.plain, current.err
	} else {
		c.compile(ctx, next)
		var before []sdk.ResourceName
		if current != nil {
			before = current.plain
		}
		c.recount(before, next.plain)
	}
	n.inventory.Store(next)
	return next
}

// covers reports whether inv is what a Filter that is given this version of the Node should see. An informer's event can
// be ahead of the scheduler's snapshot.
func (inv *inventory) covers(source *v1.Node) bool {
	if inv == nil || inv.retry {
		return false
	}
	if inv.source == source {
		return true
	}
	if inv.source.UID != source.UID {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(inv.source.ResourceVersion, source.ResourceVersion)
	return err == nil && order >= 0
}

// sameDevices reports whether two versions of a Node differ in nothing that an inventory is made of.
func sameDevices(a, b *v1.Node) bool {
	return a.UID == b.UID && a.Annotations[deviceinfo.Annotation] == b.Annotations[deviceinfo.Annotation] &&
		apiequality.Semantic.DeepEqual(a.Status.Capacity, b.Status.Capacity) &&
		apiequality.Semantic.DeepEqual(a.Status.Allocatable, b.Status.Allocatable)
}

// compile reads the Node and tells the plugins of it.
func (c *Cache) compile(ctx context.Context, inv *inventory) {
	source := inv.source
	inv.revision = c.revisions.Add(1)
	info := sdk.NewNodeInfo()
	if value := source.Annotations[deviceinfo.Annotation]; value != "" {
		decoded, err := deviceinfo.DecodeNode(value)
		if err != nil {
			inv.err = fmt.Errorf("its inventory cannot be read: %w", err)
			klog.FromContext(ctx).Error(err, "No devices are scheduled on a node whose inventory cannot be read", "node", klog.KObj(source))
			return
		}
		info = decoded
	}
	info.Name = source.Name
	info.KubeCap = quantities(source.Status.Capacity)
	info.KubeAlloc = quantities(source.Status.Allocatable)
	inv.devices, inv.err = c.schedulers.AddNode(ctx, info)
	if inv.err != nil {
		inv.retry = true
		klog.FromContext(ctx).Error(inv.err, "No devices are scheduled on a node that a device scheduler does not take", "node", klog.KObj(source))
		return
	}
	inv.plain = inv.devices.PlainNames()
}

func quantities(list v1.ResourceList) sdk.ResourceList {
	out := make(sdk.ResourceList, len(list))
	for name, quantity := range list {
		out[sdk.ResourceName(name)] = quantity.Value()
	}
	return out
}
