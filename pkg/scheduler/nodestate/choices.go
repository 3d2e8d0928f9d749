// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/cache"
	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	requestnames "github.com/kubedevice/kubedevice/pkg/request/names"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// modelAttribute is the attribute of a GPU that is its model, gpuLevel the level of GPUs, and
// sharedResource the resource of a device of which pods have shares.
const (
	modelAttribute = "productName"
	gpuLevel       = "gpu"
	sharedResource = "memory"
)

// chosenKey identifies the devices that are left for a choice of those of an inventory.
type chosenKey struct {
	devices *allocation.Inventory
	choice  requestnames.Choice
}

// choices keeps the devices that are left for choices of pods. Most nodes are never searched for
// any, so the memory for it is taken with the first one. It is safe for concurrent use.
type choices struct {
	kept atomic.Pointer[cache.Cache[chosenKey, *allocation.Inventory]]
}

func (c *choices) add(key chosenKey, devices *allocation.Inventory) {
	if c.kept.Load() == nil {
		c.kept.CompareAndSwap(nil, cache.New[chosenKey, *allocation.Inventory](variantEntries))
	}
	c.kept.Load().Add(key, devices)
}

// get returns the devices for a choice, or nil.
func (c *choices) get(key chosenKey) *allocation.Inventory {
	kept := c.kept.Load()
	if kept == nil {
		return nil
	}
	known, _ := kept.Get(key)
	return known
}

// chosen returns the devices of a node with nothing of the GPUs that a choice leaves out: for the
// pod they are like unhealthy ones. Of a device on which shares are not held as the choice demands,
// there is nothing to share, but the device as a whole. Any other inventory than devices is kept.
func (inv *inventory) chosen(
	ctx context.Context, schedulers *allocation.Set, devices *allocation.Inventory, choice requestnames.Choice,
) (*allocation.Inventory, error) {
	if known := inv.knownChoice(devices, choice); known != nil {
		return known, nil
	}
	models := map[string]string{}
	if choice.ByModel() {
		models = modelsOf(ctx, inv.source)
	}
	enforcement := enforcementOf(ctx, inv.source)
	left := sdk.ResourceList{}
	for name, quantity := range devices.Allocatable() {
		path, err := resource.ParsePath(name)
		if err != nil || quantity == 0 {
			continue
		}
		id, isGPU := path.Instance(gpuLevel)
		if isGPU && !choice.Has(id, models[gpuLevel+"/"+id]) ||
			path.Resource() == sharedResource && !choice.MayShare(path.Device(), enforcement) {
			left[name] = 0
		}
	}
	made := devices
	if len(left) > 0 {
		var err error
		if made, err = schedulers.WithAllocatable(ctx, devices, left, true); err != nil {
			return nil, err
		}
	}
	if made.Complete() {
		inv.choices.add(chosenKey{devices, choice}, made)
	}
	return made, nil
}

// knownChoice is chosen if that is known at once; nil if not.
func (inv *inventory) knownChoice(devices *allocation.Inventory, choice requestnames.Choice) *allocation.Inventory {
	return inv.choices.get(chosenKey{devices, choice})
}

// enforcementOf returns by what a node holds containers to shares. What cannot be read counts as
// nothing.
func enforcementOf(ctx context.Context, source *v1.Node) deviceinfo.ShareEnforcement {
	enforcement, err := deviceinfo.DecodeShareEnforcement(source.Annotations[deviceinfo.ShareEnforcementAnnotation])
	if err != nil {
		klog.FromContext(ctx).Error(err, "What holds a node's containers to shares is not known: pods that demand "+
			"more than that shares are counted do not get any there", logkey.Node, klog.KObj(source))
	}
	return enforcement
}

// modelsOf returns the models of a node's devices, by level and ID. Attributes that cannot be read
// are unknown.
func modelsOf(ctx context.Context, source *v1.Node) map[string]string {
	attributes, err := deviceinfo.DecodeAttributes(source.Annotations[deviceinfo.AttributesAnnotation])
	if err != nil {
		klog.FromContext(ctx).Error(err, "The models of a node's GPUs are not known: pods that choose by models do "+
			"not get them", logkey.Node, klog.KObj(source))
	}
	models := map[string]string{}
	for path, deviceAttributes := range attributes {
		if model := deviceAttributes[modelAttribute]; model.Kind() == device.StringAttribute {
			models[deviceinfo.TaintedDevice(path)] = model.String()
		}
	}
	return models
}
