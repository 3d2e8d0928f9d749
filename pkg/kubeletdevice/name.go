// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletdevice

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// The fixed segments of a name.
const (
	// Level is the level that all hosted devices stand below.
	Level = "numa"
	// Unknown is the instance of Level for devices whose plugin tells no topology.
	Unknown = "none"
	// Quantity is the last segment of a name: of each device there is one to give.
	Quantity = "device"

	prefix = types.DeviceGroupPrefix + "/" + Level + "/"
)

// MaxBytes is the longest name: what fits into the annotations.
const MaxBytes = 1024

// Device is one device of a plugin that is registered as with the kubelet.
type Device struct {
	// Resource is the extended resource that the plugin serves, such as intel.com/qat.
	Resource types.ResourceName
	// ID is the plugin's name for the device, unique among those of its resource.
	ID string
	// NUMA are the NUMA nodes that it belongs to, in ascending order; empty when the plugin tells
	// none.
	NUMA []int
}

// Name returns the resource that stands for the device. The NUMA nodes may come in any order and
// more than once; negative ones, by which Linux says that there is none, are left out. The error of
// a device that has no name says why.
func Name(d Device) (types.ResourceName, error) {
	level, err := Segment(d.Resource)
	if err != nil {
		return "", fmt.Errorf("device %q: %w", d.ID, err)
	}
	if d.ID == "" {
		return "", fmt.Errorf("a device of %s has an empty ID", d.Resource)
	}
	name := prefix + nodes(d.NUMA) + "/" + level + "/" + escape(d.ID) + "/" + Quantity
	if len(name) > MaxBytes {
		return "", fmt.Errorf("device %.40q… of %s: its name as a resource is %d bytes long, more than %d; the plugin must use a shorter ID",
			d.ID, d.Resource, len(name), MaxBytes)
	}
	return types.ResourceName(name), nil
}

// Parse returns the device that a resource of a node stands for, and whether it is one that Name
// returns.
func Parse(name types.ResourceName) (d Device, ok bool) {
	numa, resource, id, ok := split(name)
	if !ok {
		return Device{}, false
	}
	d.Resource = resource
	if d.ID, ok = unescape(id); !ok {
		return Device{}, false
	}
	if numa != Unknown {
		for node := range strings.SplitSeq(numa, "-") {
			number, err := strconv.Atoi(node)
			if err != nil {
				return Device{}, false
			}
			d.NUMA = append(d.NUMA, number)
		}
	}
	// One device, one name: what is merely read as the same is another.
	again, err := Name(d)
	if err != nil || again != name {
		return Device{}, false
	}
	return d, true
}

// Segment returns the level that the devices of an extended resource stand at, below Level. It
// returns an error for what is no name of an extended resource.
func Segment(resource types.ResourceName) (string, error) {
	domain, name, qualified := strings.Cut(string(resource), "/")
	if !qualified || !plain(domain) || !plain(name) {
		return "", fmt.Errorf("resource %q is no name for an extended resource: it must be like vendor.example/device", resource)
	}
	return escape(domain) + ":" + escape(name), nil
}

// plain reports whether s has only characters that a name in Kubernetes may have.
func plain(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_')
	})
}

// split takes the name of a device or a request apart. id is as it stands in the name.
func split(name types.ResourceName) (numa string, resource types.ResourceName, id string, ok bool) {
	rest, ok := strings.CutPrefix(string(name), prefix)
	if !ok {
		return "", "", "", false
	}
	segments := strings.Split(rest, "/")
	if len(segments) != 4 || segments[0] == "" || segments[2] == "" || segments[3] != Quantity {
		return "", "", "", false
	}
	escaped := strings.Replace(segments[1], ":", "/", 1)
	domain, kind, _ := strings.Cut(escaped, "/")
	domain, readable := unescape(domain)
	kind, alsoReadable := unescape(kind)
	resource = types.ResourceName(domain + "/" + kind)
	if level, err := Segment(resource); !readable || !alsoReadable || err != nil || level != segments[1] {
		return "", "", "", false
	}
	return segments[0], resource, segments[2], true
}

// nodes returns the instance of Level for the NUMA nodes.
func nodes(numa []int) string {
	sorted := slices.DeleteFunc(slices.Clone(numa), func(node int) bool { return node < 0 })
	slices.Sort(sorted)
	var text []string
	for _, node := range slices.Compact(sorted) {
		text = append(text, strconv.Itoa(node))
	}
	if len(text) == 0 {
		return Unknown
	}
	return strings.Join(text, "-")
}
