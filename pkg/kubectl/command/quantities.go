// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/kubectl/columns"
	"github.com/kubedevice/kubedevice/pkg/kubectl/devices"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// quantity returns so much of a resource in words.
func quantity(name string, n int64) string {
	if resource.IsEnumResource(types.ResourceName(name)) {
		return fmt.Sprintf("%#x", n)
	}
	return grouptree.Human(n)
}

// quantities returns so much of several resources in words: cards 1, memory 80 GiB.
func quantities(amounts map[string]int64) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		texts = append(texts, name+" "+quantity(name, amounts[name]))
	}
	return strings.Join(texts, ", ")
}

// usedOf returns how much of each resource is used: cards 0/1, memory 20 GiB/80 GiB. A mask is
// shown as it is.
func usedOf(resources []devices.Resource) string {
	var texts []string
	for _, r := range resources {
		text := r.Name + " " + quantity(r.Name, r.Allocatable)
		if !r.Mask() {
			text = r.Name + " " + grouptree.Human(r.Used) + "/" + grouptree.Human(r.Allocatable)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

// colorOf returns the style of a state.
func colorOf(state devices.State) columns.Style {
	switch state {
	case devices.Waiting, devices.Bound:
		return columns.Yellow
	case devices.Unallocated, devices.Unreadable, devices.Refused:
		return columns.Red
	case devices.Finished, devices.Deleted:
		return columns.Dim
	default:
		return columns.Green
	}
}
