// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Observe brings what is known of the node up to date. Calling it is never needed for correctness,
// since State does the same; it lets plugins that compare nodes know all of them before the first
// pod comes.
func (c *Cache) Observe(ctx context.Context, source *v1.Node) {
	c.sync(ctx, source)
}

// Forget drops the inventory of a node that is deleted, unless a node of the same name has taken
// its place. Reservations stay until their pods are deleted: the node may come back.
func (c *Cache) Forget(ctx context.Context, source *v1.Node) {
	c.write(source.Name, func(n *node) {
		current := n.inventory.Load()
		if current == nil || current.source.UID != source.UID {
			return
		}
		n.inventory.Store(nil)
		n.last.Store(nil)
		if c.claims != nil {
			c.claims.Forget(source.Name)
		}
		c.plain.replace(current.plain, nil)
		c.schedulers.RemoveNode(ctx, source.Name)
	})
}

// sync returns the inventory of this version of the Node, or of a newer one. Inventories never go
// back: what is compiled is the lister's version, and a node that the lister does not have is not
// brought back by a snapshot that still has it.
func (c *Cache) sync(ctx context.Context, source *v1.Node) *inventory {
	if _, current := c.currentFor(source); current != nil {
		return current
	}
	answer := nodeDeleted
	c.write(source.Name, func(n *node) {
		latest, err := c.lister.Get(source.Name)
		if err != nil { // Forget will come, or was here
			return
		}
		current := n.inventory.Load()
		if !c.isCurrent(current, latest) {
			current = c.next(ctx, current, latest)
			c.use(n, current)
		}
		answer = current
	})
	return answer
}

// currentFor returns what is known of the node when its inventory is up to date for this version of
// the Node, else nil.
func (c *Cache) currentFor(source *v1.Node) (*node, *inventory) {
	n := c.find(source.Name)
	if n == nil {
		return nil, nil
	}
	if current := n.inventory.Load(); c.isCurrent(current, source) {
		return n, current
	}
	return nil, nil
}

// isCurrent reports whether inv is up to date for a caller that sees this version of the Node.
func (c *Cache) isCurrent(inv *inventory, source *v1.Node) bool {
	if inv == nil || inv.source.UID != source.UID || !inv.retryAt.IsZero() && !c.clock.Now().Before(inv.retryAt) {
		return false
	}
	if inv.source.ResourceVersion == source.ResourceVersion {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(inv.source.ResourceVersion, source.ResourceVersion)
	return err == nil && order > 0
}

// next returns the inventory that follows current, which may be nil.
func (c *Cache) next(ctx context.Context, current *inventory, source *v1.Node) *inventory {
	if current != nil && current.retryAt.IsZero() && sameDevices(current.source, source) {
		same := *current
		same.source = source
		return &same
	}
	return c.renewed(ctx, current, source)
}

// renewed compiles the inventory that follows current, which may be nil.
func (c *Cache) renewed(ctx context.Context, current *inventory, source *v1.Node) *inventory {
	next := &inventory{
		source: source, revision: c.revisions.Add(1), verifier: c.verifier.Load(),
		choices: &choices{},
	}
	if c.claims != nil {
		next.claimed = c.claims.Claimed(source)
	}
	next.devices, next.taints, next.err = c.compile(ctx, source, next.claimed)
	if next.err == nil {
		if next.reported, next.err = deviceinfo.HoldersOf(source); next.err != nil {
			next.devices, next.taints = nil, nil
		}
	}
	switch {
	case next.err != nil:
		klog.FromContext(ctx).Error(next.err, "No devices are scheduled on a node", logkey.Node, klog.KObj(source))
		if errors.Is(next.err, pluginhost.ErrNoAnswer) {
			next.retryAt = c.clock.Now().Add(pluginhost.AddNodeInterval)
		}
	default:
		next.plain, next.numa = next.devices.PlainNames(), numaOf(next.devices)
		if !next.devices.Complete() {
			next.retryAt = c.clock.Now().Add(pluginhost.AddNodeInterval)
		}
	}
	var before []sdk.ResourceName
	if current != nil {
		before = current.plain
	}
	c.plain.replace(before, next.plain)
	return next
}

// compile reads the Node and adds it to the plugins, with nothing of the devices that claims have.
// Errors do not name the node.
func (c *Cache) compile(
	ctx context.Context, source *v1.Node, claimed map[string]bool,
) (*allocation.Inventory, *taints, error) {
	tainting := readTaints(ctx, source)
	info := sdk.NewNodeInfo()
	if value := source.Annotations[deviceinfo.Annotation]; value != "" {
		decoded, err := deviceinfo.DecodeNode(value)
		if err != nil {
			return nil, nil, fmt.Errorf("unreadable inventory: %w", err)
		}
		info = decoded
	}
	info.Name = source.Name
	info.KubeCap = quantities(source.Status.Capacity)
	info.KubeAlloc = quantities(source.Status.Allocatable)
	withholdClaimed(info.Allocatable, claimed)
	if tainting != nil {
		tainting.withhold(info.Allocatable)
	}
	devices, err := c.schedulers.AddNode(ctx, info)
	if err != nil {
		return nil, nil, fmt.Errorf("inventory not taken: %w", err)
	}
	if devices, err = c.withoutClaimed(ctx, devices, claimed); err != nil {
		return nil, nil, fmt.Errorf("inventory not taken without its claimed devices: %w", err)
	}
	if tainting == nil {
		return devices, nil, nil
	}
	c.tainted.Store(true)
	taints, devices, err := tainting.forInventory(ctx, c.schedulers, devices)
	if err != nil {
		return nil, nil, fmt.Errorf("inventory not taken without its tainted devices: %w", err)
	}
	return devices, taints, nil
}

// Serves reports whether some node's inventory lists the plain resource name, or a plugin claims
// it: a pod that requests it may be a device pod, which each node decides for itself.
func (c *Cache) Serves(name sdk.ResourceName) bool {
	return c.plain.has(name) || c.schedulers.Claims(name)
}

// RequestsFrom reports whether the pod requests an extended resource that is a device on this node;
// on one whose inventory cannot be read, one that is a device on any node.
func (c *Cache) RequestsFrom(ctx context.Context, source *v1.Node, pod *v1.Pod) bool {
	if devices := c.sync(ctx, source).devices; devices != nil {
		return request.Counts(pod, devices.Counts)
	}
	return c.Requests.CountsDevices(pod)
}
