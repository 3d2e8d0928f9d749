// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/node/advertise"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// virtualFlag is the flag that says how often devices count.
const virtualFlag = "virtual-devices"

// maxVirtual is how often a device counts at most: no node runs so many pods.
const maxVirtual = 1024

// checkVirtual checks how often devices count, by their extended resource.
func checkVirtual(list map[string]int64) error {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		switch times := list[name]; {
		case !resource.IsExtendedResource(types.ResourceName(name)):
			return fmt.Errorf("--%s: %q is no extended resource: write one that counts devices, such as "+
				"nvidia.com/gpu=10", virtualFlag, name)
		case times < 1 || times > maxVirtual:
			return fmt.Errorf("--%s: each device of %s counts %d times; want 1 to %d", virtualFlag, name, times,
				maxVirtual)
		}
	}
	return nil
}

// virtualDevices returns how often devices count, as the advertiser takes it.
func virtualDevices(list map[string]int64) advertise.VirtualDevices {
	virtual := advertise.VirtualDevices{}
	for name, times := range list {
		virtual[types.ResourceName(name)] = times
	}
	return virtual
}

// virtualText returns how a map is written as the value of --virtual-devices, or nil for none.
func virtualText(list map[string]int64) *string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		texts = append(texts, fmt.Sprintf("%s=%d", name, list[name]))
	}
	if len(texts) == 0 {
		return nil
	}
	written := strings.Join(texts, ",")
	return &written
}
