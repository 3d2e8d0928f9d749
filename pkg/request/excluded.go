// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Exclusion is a request not to get a device of a kubelet device plugin. That of a container counts
// for the pod.
type Exclusion struct {
	kubeletdevice.Selection
	// Field is the path of the request, as in [deviceinfo.Error].
	Field string
	// Request is the request as it is written.
	Request types.ResourceName
}

// Unknown returns the mistake of an exclusion by an ID that no device of the resource has.
func (e Exclusion) Unknown() Mistake {
	return Mistake{Field: e.Field, Word: string(e.Request), Problem: UnknownDevice(e.Selection)}
}

// UnknownDevice says that no node has the device that a request names by its ID, and what follows.
func UnknownDevice(s kubeletdevice.Selection) string {
	follows := "the pod waits for it"
	if s.Excludes() {
		follows = "excluding it has no effect"
	}
	return fmt.Sprintf("no node has the device %s of %s: %s", s.ID, s.Resource, follows)
}

// Exclusions returns the devices that a pod excludes, by the names of containers and requests.
func Exclusions(written *types.PodInfo) (found []Exclusion) {
	add := func(list, container string, requests types.ResourceList) {
		for _, request := range slices.Sorted(maps.Keys(requests)) {
			selected, ok, err := kubeletdevice.ParseSelection(request, requests[request])
			if ok && err == nil && selected.Excludes() {
				field := deviceinfo.RequestField(list, container, request)
				found = append(found, Exclusion{selected, field, request})
			}
		}
	}
	add("", "", written.Requests)
	for _, name := range slices.Sorted(maps.Keys(written.InitContainers)) {
		add("initcontainer", name, written.InitContainers[name].Requests)
	}
	for _, name := range slices.Sorted(maps.Keys(written.RunningContainers)) {
		add("runningcontainer", name, written.RunningContainers[name].Requests)
	}
	return found
}
