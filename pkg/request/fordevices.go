// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// ForDevices returns the names of those requests that are for devices, sorted: paths, and counts by
// isCount, with a quantity above 0. Of two forms of one name only the full one counts. All other
// requests say how devices are chosen: options, and paths with a quantity of 0, which exclude a
// device. A container that has none for devices may be allocated nothing. The scheduler and the
// node agree on it.
func ForDevices(requests types.ResourceList, isCount func(types.ResourceName) bool) []types.ResourceName {
	var found []types.ResourceName
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		full := resource.WithPrefix(name)
		if _, twice := requests[full]; twice && full != name || requests[name] <= 0 {
			continue
		}
		if IsPath(name) || isCount(name) {
			found = append(found, name)
		}
	}
	return found
}
