// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Uncovered is what a container requests in its annotation beyond its limits: whole devices that no
// quota counts.
type Uncovered struct {
	// Container is empty for what the pod requests as a whole: no limits are for that.
	Container string
	// Resource is the plain resource that counts the devices.
	Resource types.ResourceName
	// Requested is how many devices the container requests, Limit how many of them its limits name.
	Requested, Limit int64
}

// Text says what the container's limits lack, why that matters, and what to write.
func (u Uncovered) Text(why string) string {
	if u.Container == "" {
		return fmt.Sprintf("the pod as a whole requests %d of %s in its annotation %s, which no limits name: %s: "+
			"write the request and the limit under a container", u.Requested, u.Resource, deviceinfo.Annotation, why)
	}
	return fmt.Sprintf("container %q requests %d of %s in the annotation %s and %d in its limits, %d are missing "+
		"there: %s: add %q to limits of container %q", u.Container, u.Requested, u.Resource, deviceinfo.Annotation,
		u.Limit, u.Requested-u.Limit, why, fmt.Sprintf("%s: %d", u.Resource, u.Requested), u.Container)
}

// Counting says which requests are for whole devices.
type Counting struct {
	// Devices reports whether a plain name counts devices.
	Devices func(types.ResourceName) bool
	// Paths returns the plain resource that counts the whole devices that a device path, with its
	// prefix, is for. ok is false for a path for a part of a device.
	Paths func(full types.ResourceName) (plain types.ResourceName, ok bool)
}

// Uncovered returns the whole devices that a container, or the pod as a whole, requests beyond its
// limits, in the order of the names of resources.
//
// A count in the annotation is for as many devices. As plugins do, it takes the larger number of
// the counts and the paths.
func (c Counting) Uncovered(container string, requests, limits types.ResourceList) (found []Uncovered) {
	if len(requests) == 0 {
		return nil
	}
	paths := types.ResourceList{} // devices that are requested by their paths, by the plain resource
	for request, quantity := range requests {
		full := resource.WithPrefix(request)
		if _, twice := requests[full]; twice && full != request {
			continue // of two forms of one name the full one counts
		}
		if plain, ok := c.Paths(full); ok && quantity > 0 {
			paths[plain] += min(quantity, math.MaxInt64-paths[plain])
		}
	}
	for request, quantity := range requests {
		if c.Devices(request) {
			paths[request] = max(paths[request], quantity)
		}
	}
	for _, plain := range slices.Sorted(maps.Keys(paths)) {
		if paths[plain] > limits[plain] {
			found = append(found, Uncovered{container, plain, paths[plain], limits[plain]})
		}
	}
	return found
}
