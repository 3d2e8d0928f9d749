// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletdevice

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// The fixed segments of a name.
const (
	// Level is the level of the NUMA nodes.
	Level = "numa"
	// Unknown is the instance of Level for devices whose plugin reports no topology.
	Unknown = "none"
	// Quantity is the last segment: a device has one of it.
	Quantity = "device"

	prefix = types.DeviceGroupPrefix + "/" + Level + "/"
)

// MaxBytes is the longest name: what fits into the annotations.
const MaxBytes = 1024

// Device is one device of a kubelet device plugin.
type Device struct {
	// Resource is the extended resource that the plugin serves, such as intel.com/qat.
	Resource types.ResourceName
	// ID is the plugin's name for the device, unique among those of its resource.
	ID string
	// NUMA are the NUMA nodes that it belongs to, in ascending order; empty when the plugin reports
	// none.
	NUMA []int
}

// Name returns the resource that stands for the device. The NUMA nodes may be in any order and
// occur more than once; negative ones, by which Linux says that there is none, are ignored. The
// error says why the device has no name.
func Name(d Device) (types.ResourceName, error) {
	level, err := segment(d.Resource)
	if err != nil {
		return "", fmt.Errorf("device %q: %w", d.ID, err)
	}
	if d.ID == "" {
		return "", fmt.Errorf("a device of %s has an empty ID", d.Resource)
	}
	name := prefix + instance(d.NUMA) + "/" + level + "/" + escape(d.ID) + "/" + Quantity
	if len(name) > MaxBytes {
		return "", fmt.Errorf("device %.40q… of %s: its name as a resource is %d bytes long, more than %d; "+
			"the plugin must use a shorter ID", d.ID, d.Resource, len(name), MaxBytes)
	}
	return types.ResourceName(name), nil
}

// Parse returns the device that a resource of a node stands for, and whether Name returns that
// name.
func Parse(name types.ResourceName) (d Device, ok bool) {
	extended, numa, id, ok := ParseRequest(name)
	if !ok {
		return Device{}, false
	}
	d.Resource = extended
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
	// A device has one name: another spelling of it is not one.
	if canonical, err := Name(d); err != nil || canonical != name {
		return Device{}, false
	}
	return d, true
}

// Text names for people the device that a resource of a node belongs to: one of a kubelet device
// plugin by its ID, any other by its path.
func Text(name types.ResourceName) string {
	if d, ok := Parse(name); ok {
		return fmt.Sprintf("device %s of %s", d.ID, d.Resource)
	}
	return "device " + path.Dir(string(name))
}

// Request returns the name of a request for one device of an extended resource. Requests of one
// container with the same numa are served from the same NUMA nodes; device distinguishes the
// devices of one resource and numa. Both are placeholders: any segments without "/". The error says
// that the resource is not an extended one.
func Request(extended types.ResourceName, numa, device string) (types.ResourceName, error) {
	level, err := segment(extended)
	if err != nil {
		return "", err
	}
	return types.ResourceName(prefix + numa + "/" + level + "/" + device + "/" + Quantity), nil
}

// ParseRequest returns what Request was called with, and whether name is of that form. A device's
// name is, too: its nodes and its ID, escaped as they are, are the placeholders.
func ParseRequest(name types.ResourceName) (extended types.ResourceName, numa, device string, ok bool) {
	path, err := resource.ParsePath(name)
	if err != nil || path.Depth() != 2 || path.Resource() != Quantity || !strings.HasPrefix(string(name), prefix) {
		return "", "", "", false
	}
	unescaped, ok := unescape(strings.Replace(path.DeviceLevel(), ":", "/", 1))
	extended = types.ResourceName(unescaped)
	if level, err := segment(extended); !ok || err != nil || level != path.DeviceLevel() {
		return "", "", "", false
	}
	numa, _ = path.Instance(Level)
	return extended, numa, path.DeviceID(), true
}

// segment returns the level that stands for an extended resource.
func segment(extended types.ResourceName) (string, error) {
	if !resource.IsExtendedResource(extended) {
		return "", fmt.Errorf("resource %q is no name for an extended resource: it must be like vendor.example/device",
			extended)
	}
	domain, name, _ := strings.Cut(string(extended), "/")
	return escape(domain) + ":" + escape(name), nil
}

// instance returns the instance of Level for the NUMA nodes.
func instance(numa []int) string {
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
