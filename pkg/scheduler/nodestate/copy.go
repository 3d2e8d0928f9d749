// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/kubedevice/kubedevice/pkg/cache"
	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Copy is a cache for questions about what would be. It begins with the nodes and the reservations
// of another one, and goes its own way: nothing that is done to it is seen there, it never reports
// a node to a plugin, and nodes never change in it. What both share is immutable, or answers that
// depend on nothing but the question. One goroutine at a time may change it.
type Copy struct {
	*Cache
	// Nodes are the nodes by name, each in the version of which the devices are known.
	Nodes map[string]*v1.Node
	// ReservedOn has the node of each pod that has a reservation.
	ReservedOn map[types.UID]string
}

// Copy returns a copy of the state at this moment.
func (c *Cache) Copy() *Copy {
	mine := &Cache{
		schedulers: c.schedulers, clock: c.clock,
		lister: corelisters.NewNodeLister(toolscache.NewIndexer(
			toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{})),
		seals: c.seals, allocations: c.allocations,
		estimates:  cache.New[estimateKey, *allocation.Node](1), // the copy has inventories of its own
		requesting: c.requesting,
	}
	mine.Requests = c.Requests.Copy(mine)
	mine.verifier.Store(c.verifier.Load())
	mine.tainted.Store(c.tainted.Load())
	mine.choosing.Store(c.choosing.Load())
	mine.revisions.Store(c.revisions.Load())
	copied := &Copy{Cache: mine, Nodes: map[string]*v1.Node{}, ReservedOn: map[types.UID]string{}}
	c.nodes.Range(func(key, value any) bool {
		cached := value.(*node)
		inv, reserved := cached.inventory.Load(), cached.reserved.Load()
		if inv == nil { // of a node that is gone
			return true
		}
		if !inv.retryAt.IsZero() {
			once := *inv
			once.retryAt = once.retryAt.AddDate(1, 0, 0) // no plugin is called again
			inv = &once
		}
		same := &node{}
		same.inventory.Store(inv)
		same.reserved.Store(reserved)
		same.last.Store(cached.last.Load())
		mine.nodes.Store(key, same)
		mine.plain.replace(nil, inv.plain)
		copied.Nodes[key.(string)] = inv.source
		for uid := range orNone(reserved).pods {
			copied.ReservedOn[uid] = key.(string)
			mine.reservedOn.add(uid, key.(string))
		}
		return true
	})
	return copied
}

// Remove drops a pod's reservations, if it has any.
func (c *Copy) Remove(uid types.UID) {
	delete(c.ReservedOn, uid)
	c.PodDeleted(uid)
}

// Cordon makes a node take no more pods: the same as kubectl cordon.
func (c *Copy) Cordon(nodeName string) error {
	cached := c.find(nodeName)
	if cached == nil {
		return fmt.Errorf("there is no node %q", nodeName)
	}
	inv := *cached.inventory.Load()
	inv.source = inv.source.DeepCopy()
	inv.source.Spec.Unschedulable = true
	cached.inventory.Store(&inv)
	c.Nodes[nodeName] = inv.source
	return nil
}

// AddLike adds a node that is built like another one and on which nothing is held. It is ready and
// not cordoned, and its devices have no taints. How plugins translate requests is what they made of
// the nodes that there are.
func (c *Copy) AddLike(ctx context.Context, name, like string) error {
	known, cached := c.Nodes[like], c.find(like)
	if known == nil || cached == nil {
		return fmt.Errorf("there is no node %q", like)
	}
	if c.Nodes[name] != nil {
		return fmt.Errorf("there is a node %q already", name)
	}
	added := known.DeepCopy()
	added.Name, added.UID, added.ResourceVersion = name, types.UID(name), "1"
	added.CreationTimestamp = metav1.Time{}
	if added.Labels == nil {
		added.Labels = map[string]string{}
	}
	added.Labels[v1.LabelHostname] = name
	added.Spec.Unschedulable = false
	var taints []v1.Taint
	for _, taint := range added.Spec.Taints {
		if !strings.HasPrefix(taint.Key, "node.kubernetes.io/") { // of a node's condition
			taints = append(taints, taint)
		}
	}
	added.Spec.Taints = taints
	inv := *cached.inventory.Load()
	if inv.taints != nil {
		var err error
		all := inv.taints.restored(math.MaxUint64)
		if inv.devices, err = c.schedulers.WithAllocatable(ctx, inv.devices, all, false); err != nil {
			return fmt.Errorf("node %q with all its devices: %w", like, err)
		}
		inv.taints = nil
		delete(added.Annotations, deviceinfo.DeviceTaintsAnnotation)
	}
	inv.source, inv.revision, inv.reported = added, c.revisions.Add(1), nil
	fresh := &node{}
	fresh.inventory.Store(&inv)
	c.nodes.Store(name, fresh)
	c.plain.replace(nil, inv.plain)
	c.Nodes[name] = added
	return nil
}

// CordonDevice gives a device the taint of a cordoned one: pods that do not tolerate it do not get
// the device. It is named by its path, or by as much of the path's end as only one device of the
// node has.
func (c *Copy) CordonDevice(ctx context.Context, nodeName, device string) error {
	cached := c.find(nodeName)
	if cached == nil || c.Nodes[nodeName] == nil {
		return fmt.Errorf("there is no node %q", nodeName)
	}
	inv := *cached.inventory.Load()
	if inv.err != nil {
		return fmt.Errorf("the devices of node %q are not known: %w", nodeName, inv.err)
	}
	found := ""
	for name := range inv.devices.Allocatable() {
		path, err := resource.ParsePath(name)
		if err != nil || path.Device() != device && !strings.HasSuffix(path.Device(), "/"+device) {
			continue
		}
		if found != "" && found != path.Device() {
			return fmt.Errorf("node %q has several devices %q, such as %s and %s: write more of the path",
				nodeName, device, min(found, path.Device()), max(found, path.Device()))
		}
		found = path.Device()
	}
	if found == "" {
		return fmt.Errorf("node %q has no device %q: kubectl device nodes %s lists them", nodeName, device, nodeName)
	}
	var err error
	if inv.devices, inv.taints, err = cordoned(ctx, c.schedulers, &inv, found); err != nil {
		return fmt.Errorf("node %q without device %s: %w", nodeName, found, err)
	}
	inv.revision = c.revisions.Add(1)
	c.tainted.Store(true)
	cached.inventory.Store(&inv)
	return nil
}

// cordoned returns a node's devices and their taints with one more cordoned device.
func cordoned(
	ctx context.Context, schedulers *allocation.Set, inv *inventory, device string,
) (*allocation.Inventory, *taints, error) {
	more := tainting{}
	next := &taints{variants: cache.New[uint64, *allocation.Inventory](variantEntries)}
	if inv.taints != nil {
		more.kinds, next.withheld = slices.Clone(inv.taints.kinds), slices.Clone(inv.taints.withheld)
	}
	bit := uint64(1) << more.bit(v1.Taint{Key: deviceinfo.CordonKey, Effect: v1.TaintEffectNoSchedule})
	next.kinds = more.kinds
	known, without := map[sdk.ResourceName]bool{}, sdk.ResourceList{}
	for i := range next.withheld {
		if w := &next.withheld[i]; w.path.Device() == device {
			w.taints |= bit
			known[w.path.Name()] = true
		}
	}
	for name, quantity := range inv.devices.Allocatable() {
		if path, err := resource.ParsePath(name); err == nil && path.Device() == device && !known[name] {
			next.withheld = append(next.withheld, withheld{path, quantity, bit})
			without[name] = 0
		}
	}
	devices, err := schedulers.WithAllocatable(ctx, inv.devices, without, false)
	return devices, next, err
}
