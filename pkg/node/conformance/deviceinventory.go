// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func (d *devicePlugin) checkInventory() error {
	info := types.NewNodeInfoWithName(nodeName)
	if err := d.update(info); err != nil {
		return err
	}
	d.last = info.Clone()
	for what, list := range map[string]types.ResourceList{
		"Capacity": info.Capacity, "Allocatable": info.Allocatable, "KubeCap": info.KubeCap,
		"KubeAlloc": info.KubeAlloc,
	} {
		if list == nil {
			return withFix(fmt.Errorf("it leaves %s nil", what), "add to the map that is there")
		}
		if err := checkQuantities(what, list); err != nil {
			return err
		}
	}
	if err := plugins.CheckReport(info); err != nil {
		return err
	}
	for what, lists := range map[string][2]types.ResourceList{
		"Allocatable": {info.Allocatable, info.Capacity}, "KubeAlloc": {info.KubeAlloc, info.KubeCap},
	} {
		for _, name := range slices.Sorted(maps.Keys(lists[0])) {
			if all, known := lists[1][name]; !known || lists[0][name] > all {
				return fmt.Errorf("%s has %d of %s, of which there are %s in all", what, lists[0][name], name,
					quantity(lists[1], name))
			}
		}
	}
	if err := checkUnique(info.Capacity); err != nil {
		return err
	}
	if len(devices(info)) == 0 {
		if d.options.NoDevices {
			return notApplicable("it reports no device, as may be on a machine without them")
		}
		return withFix(errors.New("it reports no device that could be allocated"),
			"run the test where the devices are, or with --no-devices")
	}
	return nil
}

// checkQuantities checks the names and the quantities of a list.
func checkQuantities(what string, list types.ResourceList) error {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if list[name] < 0 {
			return withFix(fmt.Errorf("%s has %d of %s", what, list[name], name), "report no negative quantities")
		}
		if !resource.IsGroupResourceName(name) {
			continue
		}
		if _, err := resource.ParsePath(name); err != nil {
			return fmt.Errorf("%s has the name %s: %w", what, brief(string(name)), err)
		}
	}
	return nil
}

// checkUnique looks for devices that have one ID: the host distinguishes devices by level and ID.
func checkUnique(list types.ResourceList) error {
	seen := map[[2]string]resource.Path{}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		path, err := resource.ParsePath(name)
		if err != nil || path.Depth() == 0 {
			continue
		}
		id := [2]string{path.DeviceLevel(), path.DeviceID()}
		if other, known := seen[id]; known && other.Device() != path.Device() {
			return withFix(fmt.Errorf("two devices have one ID: %s and %s", other.Device(), path.Device()),
				"give each device of a level an ID of its own, also in different groups")
		}
		seen[id] = path
	}
	return nil
}

// addForeign are what another plugin has put into a NodeInfo.
func addForeign(info *types.NodeInfo) {
	name := slices.Collect(maps.Keys(foreign.resources))[0]
	info.Capacity[name], info.Allocatable[name] = 1, 1
	info.KubeCap["another.example/device"], info.KubeAlloc["another.example/device"] = 1, 1
	info.Scorer[name] = 1
}

func (d *devicePlugin) checkAdds() error {
	alone, err := d.inventory()
	if err != nil {
		return err
	}
	both := types.NewNodeInfoWithName(nodeName)
	addForeign(both)
	if err := d.update(both); err != nil {
		return err
	}
	addForeign(alone)
	return sameInventory(alone, both)
}

func (d *devicePlugin) checkStable() error {
	first, err := d.inventory()
	if err != nil {
		return err
	}
	for _, name := range []string{nodeName, nodeName, "another-node", "", strings.Repeat("n", 253)} {
		again := types.NewNodeInfoWithName(name)
		if err := d.update(again); err != nil {
			return fmt.Errorf("for a node called %.20q: %w", name, err)
		}
		if err := sameInventory(first, again); err != nil {
			return err
		}
	}
	return nil
}

func (d *devicePlugin) checkInventoryOwn() error {
	first, err := d.inventory()
	if err != nil {
		return err
	}
	allocated := types.NewNodeInfoWithName(nodeName)
	if err := d.update(allocated); err != nil {
		return err
	}
	const mark types.ResourceName = "resource/group/another-vendors-device/mark/units"
	for _, list := range []types.ResourceList{
		allocated.Capacity, allocated.Allocatable, allocated.KubeCap, allocated.KubeAlloc,
	} {
		clear(list)
		list[mark] = 1
	}
	again, err := d.inventory()
	if err != nil {
		return err
	}
	if err := sameInventory(first, again); err != nil {
		return fmt.Errorf("after the host changed the NodeInfo of the call before, %w", err)
	}
	if len(allocated.Capacity)+len(allocated.Allocatable) != 2 {
		return errors.New("a call changed the NodeInfo of the call before")
	}
	return nil
}
