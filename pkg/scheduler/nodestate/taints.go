// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/cache"
	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// variantEntries is how many inventories of a node are kept for pods that tolerate different taints
// of its devices.
const variantEntries = 16

// taints are those of a node's devices. Plugins know nothing of taints: to them, and to the pods
// that tolerate none, a tainted device is like an unhealthy one, of which nothing is allocatable.
// For pods that tolerate some there are variants of the inventory. They are immutable.
type taints struct {
	kinds    []v1.Taint // each once: bit i of a set of taints stands for kinds[i]
	withheld []withheld // what there is of the devices, in the order of the names
	variants *cache.Cache[uint64, *allocation.Inventory]
}

// withheld is a resource of a tainted device.
type withheld struct {
	path     resource.Path
	quantity int64
	taints   uint64
}

// tainting is what the taints of a node say of its devices, before plugins know the node.
type tainting struct {
	kinds    []v1.Taint
	all      uint64 // of every device
	byDevice map[string]uint64
	// quantities are what there is of each resource, by the device and the resource: a plugin may
	// put a device into other groups.
	quantities map[string]int64
}

// readTaints reads the taints of a node's devices; nil for none. All devices of a node whose list
// cannot be read have the taint that says so, since any of them may be meant.
func readTaints(ctx context.Context, source *v1.Node) *tainting {
	value := source.Annotations[deviceinfo.DeviceTaintsAnnotation]
	if value == "" {
		return nil
	}
	t := &tainting{byDevice: map[string]uint64{}, quantities: map[string]int64{}}
	list, err := deviceinfo.DecodeDeviceTaints(value)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The taints of a node's devices cannot be read: no pod gets any of them",
			logkey.Node, klog.KObj(source))
		t.all = 1 << t.bit(v1.Taint{Key: deviceinfo.UnreadableKey, Effect: v1.TaintEffectNoSchedule})
	}
	for _, one := range list {
		t.byDevice[one.Device] |= 1 << t.bit(one.Taint())
	}
	return t
}

// bit returns the bit of a taint, of which there are no more than a word has.
func (t *tainting) bit(taint v1.Taint) int {
	if i := slices.Index(t.kinds, taint); i >= 0 {
		return i
	}
	t.kinds = append(t.kinds, taint)
	return len(t.kinds) - 1
}

// taintsOf returns the taints of the device that has a resource, those of what it is part of
// included.
func (t *tainting) taintsOf(path resource.Path) uint64 {
	set := t.all
	for device := range deviceinfo.DevicesOf(path) {
		set |= t.byDevice[device]
	}
	return set
}

// withhold makes nothing of the tainted devices allocatable.
func (t *tainting) withhold(allocatable sdk.ResourceList) {
	for name, quantity := range allocatable {
		path, err := resource.ParsePath(name)
		if err != nil || t.taintsOf(path) == 0 {
			continue
		}
		key := ownName(path)
		if known, twice := t.quantities[key]; !twice || quantity < known {
			t.quantities[key] = quantity
		}
		allocatable[name] = 0
	}
}

// ownName returns the device of a resource and the resource, without the groups.
func ownName(path resource.Path) string {
	return deviceinfo.TaintedDevice(path.Device()) + "/" + path.Resource()
}

// forInventory returns the taints for an inventory, as the plugins left it, and that inventory with
// nothing of the tainted devices in it.
func (t *tainting) forInventory(
	ctx context.Context, schedulers *allocation.Set, devices *allocation.Inventory,
) (*taints, *allocation.Inventory, error) {
	found := &taints{kinds: t.kinds, variants: cache.New[uint64, *allocation.Inventory](variantEntries)}
	added := sdk.ResourceList{} // by a plugin, to a device that is tainted
	for name, quantity := range devices.Allocatable() {
		path, err := resource.ParsePath(name)
		if err != nil || t.taintsOf(path) == 0 {
			continue
		}
		if quantity > 0 {
			added[name] = 0
		}
		quantity = max(quantity, t.quantities[ownName(path)])
		found.withheld = append(found.withheld, withheld{path, quantity, t.taintsOf(path)})
	}
	slices.SortFunc(found.withheld, func(a, b withheld) int { return compareNames(a.path, b.path) })
	if len(added) == 0 {
		return found, devices, nil
	}
	devices, err := schedulers.WithAllocatable(ctx, devices, added, false)
	return found, devices, err
}

func compareNames(a, b resource.Path) int {
	switch {
	case a.String() < b.String():
		return -1
	case a == b:
		return 0
	}
	return 1
}

// tolerated returns the taints that a pod with these tolerations tolerates.
func (t *taints) tolerated(tolerations []v1.Toleration) (set uint64) {
	for i, kind := range t.kinds {
		if deviceinfo.Toleration(tolerations, kind) != nil {
			set |= 1 << i
		}
	}
	return set
}

// restored returns what a pod gets that tolerates a set of taints, and one that tolerates none does
// not.
func (t *taints) restored(tolerated uint64) sdk.ResourceList {
	restored := sdk.ResourceList{}
	for i := range t.withheld {
		if w := &t.withheld[i]; w.taints&^tolerated == 0 && w.quantity > 0 {
			restored[w.path.Name()] = w.quantity
		}
	}
	return restored
}
