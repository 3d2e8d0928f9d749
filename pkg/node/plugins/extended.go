// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"path"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// ExtendedOf returns the extended resource under which the source of a device resource publishes
// the device: the only one that it has, or the one with the name of the device's lowest level, such
// as example.com/gpu for gpu. A device that the node does not have now is attributed to the source
// that has others of its level, if there is only one. The resource is not known for devices of
// sources that publish none, or none of that name.
func (i *Inventory) ExtendedOf(device types.ResourceName) (extended types.ResourceName, known bool) {
	owner, there := i.owners[device]
	if !there {
		owner = i.ownerOfLevel(levelOf(device))
	}
	var all []types.ResourceName
	for _, name := range i.ExtendedResources() {
		if owner == nil || i.owners[name] != owner {
			continue
		}
		if path.Base(string(name)) == levelOf(device) {
			return name, true
		}
		all = append(all, name)
	}
	if len(all) != 1 {
		return "", false
	}
	return all[0], true
}

// ownerOfLevel returns the only member that has devices of the level, or nil.
func (i *Inventory) ownerOfLevel(level string) *member {
	var owner *member
	for name, candidate := range i.owners {
		if level == "" || levelOf(name) != level {
			continue
		}
		if owner != nil && owner != candidate {
			return nil
		}
		owner = candidate
	}
	return owner
}

// levelOf returns the lowest level of a device resource, or nothing for other names.
func levelOf(device types.ResourceName) string {
	path, err := resource.ParsePath(device)
	if err != nil {
		return ""
	}
	return path.DeviceLevel()
}
