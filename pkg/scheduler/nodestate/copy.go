// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"math"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
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
		seals: c.seals, requests: c.requests, annotations: c.annotations, allocations: c.allocations,
		longestWait: c.longestWait, attempts: c.attempts, fixed: true,
	}
	mine.verifier.Store(c.verifier.Load())
	mine.revisions.Store(c.revisions.Load())
	copied := &Copy{Cache: mine, Nodes: map[string]*v1.Node{}, ReservedOn: map[types.UID]string{}}
	c.nodes.Range(func(key, value any) bool {
		of := value.(*node)
		inv, reserved := of.inventory.Load(), of.reserved.Load()
		if inv == nil { // of a node that is gone
			return true
		}
		if !inv.retryAt.IsZero() {
			once := *inv
			once.retryAt = once.retryAt.AddDate(1, 0, 0) // nobody asks a plugin again
			inv = &once
		}
		same := &node{}
		same.inventory.Store(inv)
		same.reserved.Store(reserved)
		same.last.Store(of.last.Load())
		mine.nodes.Store(key, same)
		mine.plain.replace(nil, inv.plain)
		copied.Nodes[key.(string)] = inv.source
		for uid := range orNone(reserved).pods {
			copied.ReservedOn[uid] = key.(string)
			mine.reservedOn.Store(uid, key.(string))
		}
		return true
	})
	return copied
}

// Remove drops a pod's reservation, if it has one.
func (c *Copy) Remove(uid types.UID) {
	delete(c.ReservedOn, uid)
	c.PodDeleted(uid)
}

// Cordon makes a node take no more pods: the same as kubectl cordon.
func (c *Copy) Cordon(nodeName string) error {
	of := c.find(nodeName)
	if of == nil {
		return fmt.Errorf("there is no node %q", nodeName)
	}
	inv := *of.inventory.Load()
	inv.source = inv.source.DeepCopy()
	inv.source.Spec.Unschedulable = true
	of.inventory.Store(&inv)
	c.Nodes[nodeName] = inv.source
	return nil
}

// AddLike adds a node that is built like another one and on which nothing is held. It is ready and
// not cordoned. How plugins translate requests is what they made of the nodes that there are.
func (c *Copy) AddLike(name, like string) error {
	known, of := c.Nodes[like], c.find(like)
	if known == nil || of == nil {
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
	inv := *of.inventory.Load()
	inv.source, inv.revision, inv.reported = added, c.revisions.Add(1), nil
	fresh := &node{}
	fresh.inventory.Store(&inv)
	c.nodes.Store(name, fresh)
	c.plain.replace(nil, inv.plain)
	c.Nodes[name] = added
	return nil
}

// CordonDevice makes nothing of a device available to pods that come, as if a pod held all of it.
// The device is named by its path, or by as much of the path's end as only one device of the node
// has.
func (c *Copy) CordonDevice(nodeName, device string) error {
	of := c.find(nodeName)
	if of == nil || c.Nodes[nodeName] == nil {
		return fmt.Errorf("there is no node %q", nodeName)
	}
	inv := of.inventory.Load()
	if inv.err != nil {
		return fmt.Errorf("the devices of node %q are not known: %w", nodeName, inv.err)
	}
	found, all := "", sdk.ContainerInfo{DevRequests: sdk.ResourceList{}, AllocateFrom: sdk.ResourceLocation{}}
	for _, at := range c.schedulers.Estimate(inv.devices, nil).Resources() {
		path, err := resource.ParsePath(at.Name)
		if err != nil || path.Device() != device && !strings.HasSuffix(path.Device(), "/"+device) {
			continue
		}
		if found != "" && found != path.Device() {
			return fmt.Errorf("node %q has several devices %q, such as %s and %s: write more of the path",
				nodeName, device, found, path.Device())
		}
		found = path.Device()
		if quantity := at.Allocatable; quantity > 0 && quantity < math.MaxInt64/2 &&
			!resource.IsEnumResource(sdk.ResourceName(path.Resource())) {
			all.DevRequests[at.Name], all.AllocateFrom[at.Name] = quantity, at.Name
		}
	}
	if found == "" {
		return fmt.Errorf("node %q has no device %q: kubectl device nodes %s lists them", nodeName, device, nodeName)
	}
	uid := types.UID("cordon/" + nodeName + "/" + found)
	info := &sdk.PodInfo{Name: "cordon", NodeName: nodeName, RunningContainers: map[string]sdk.ContainerInfo{
		"cordon": all,
	}}
	holder := dispatch.NewHolder(string(uid), info, []grouptree.Container{{Name: "cordon"}})
	c.change(nodeName, uid, func(reservation) reservation {
		return reservation{devices: holder, unresolved: 1}
	})
	return nil
}
