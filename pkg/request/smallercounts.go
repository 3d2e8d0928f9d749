// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// SmallerCounts returns a mistake for each count in a container's annotation that is smaller than
// that of its limits: the larger one is served. For a larger one in the annotation, see Uncovered.
// list is the container's list in the annotation.
func SmallerCounts(list, container string, requests, limits types.ResourceList) (found []Mistake) {
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		if quantity := requests[name]; IsCount(name) && quantity > 0 && quantity < limits[name] {
			found = append(found, Mistake{
				Field: deviceinfo.RequestField(list, container, name), Word: string(name),
				Problem: fmt.Sprintf("the container's limits have %d: the %d here has no effect, write the same "+
					"number or remove it", limits[name], quantity),
			})
		}
	}
	return found
}

// smallerCounts returns those of all containers.
func smallerCounts(pod *types.PodInfo) (found []Mistake) {
	for _, name := range slices.Sorted(maps.Keys(pod.InitContainers)) {
		info := pod.InitContainers[name]
		found = append(found, SmallerCounts("initcontainer", name, info.Requests, info.KubeRequests)...)
	}
	for _, name := range slices.Sorted(maps.Keys(pod.RunningContainers)) {
		info := pod.RunningContainers[name]
		found = append(found, SmallerCounts("runningcontainer", name, info.Requests, info.KubeRequests)...)
	}
	return found
}
