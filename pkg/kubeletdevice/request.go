// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletdevice

import "github.com/kubedevice/kubedevice/pkg/sdk/types"

// Request returns the name of a request for one device of an extended resource. Requests of one
// container with the same numa are met on the same NUMA nodes; device tells the devices of one
// resource and numa apart. Both are placeholders: any segments without "/". It returns an error for
// what is no name of an extended resource.
func Request(resource types.ResourceName, numa, device string) (types.ResourceName, error) {
	level, err := Segment(resource)
	if err != nil {
		return "", err
	}
	return types.ResourceName(prefix + numa + "/" + level + "/" + device + "/" + Quantity), nil
}

// ParseRequest returns what Request was given, and whether name is of that form. The name of a
// device is one, too: its nodes and its ID, escaped as they are, read as placeholders.
func ParseRequest(name types.ResourceName) (resource types.ResourceName, numa, device string, ok bool) {
	numa, resource, device, ok = split(name)
	return resource, numa, device, ok
}
