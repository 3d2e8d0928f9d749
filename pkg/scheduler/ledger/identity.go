// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
)

// standardBusID is the attribute by which Kubernetes names PCI addresses.
const standardBusID = "resource.kubernetes.io/pciBusID"

var (
	// uuidAttributes are attributes of a driver's own that are the UUID of a device, or of the one
	// that it is part of.
	uuidAttributes = []string{"uuid", "parentUUID"}
	// busAttributes are attributes that are a PCI address.
	busAttributes = []string{standardBusID, "pciBusID", "pcieBusID", "pciAddress", "pciAddr"}

	// uuidPattern is in an ID that is the same nowhere else.
	uuidPattern = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-`)
	pciPattern  = regexp.MustCompile(`^(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$`)
)

// identity is what a device has in common with no other one of its node. The kinds do not mix.
type identity string

// ofID returns the identity of a UUID.
func ofID(uuid string) identity { return identity("uuid " + strings.ToLower(uuid)) }

// ofAddress returns the identity of a PCI address, which has many spellings; false for anything
// else.
func ofAddress(address string) (identity, bool) {
	parts := pciPattern.FindStringSubmatch(strings.ToLower(address))
	if parts == nil {
		return "", false
	}
	domain := strings.TrimLeft(parts[1], "0")
	return identity(fmt.Sprintf("pci %04s:%s:%s.%s", domain, parts[2], parts[3], parts[4])), true
}

// isGlobal reports whether no device of any node has the same.
func (i identity) isGlobal() bool { return uuidPattern.MatchString(string(i)) }

// ofPublished returns what identifies a device of a ResourceSlice.
func ofPublished(driver string, published *resourceapi.Device) []identity {
	var all []identity
	text := func(name string) string {
		for _, spelled := range []string{name, driver + "/" + name} {
			if found := published.Attributes[resourceapi.QualifiedName(spelled)].StringValue; found != nil {
				return *found
			}
		}
		return ""
	}
	for _, name := range uuidAttributes {
		all = appendID(all, text(name))
	}
	for _, name := range busAttributes {
		all = appendAddress(all, text(name))
	}
	return all
}

// ofListed returns what identifies a device of an inventory, which has the resource of this path.
func ofListed(path resource.Path, attributes device.Attributes) []identity {
	all := ofPath(path)
	for _, name := range uuidAttributes {
		if value := attributes[name]; value.Kind() == device.StringAttribute {
			all = appendID(all, value.String())
		}
	}
	for _, name := range busAttributes {
		if value := attributes[name]; value.Kind() == device.StringAttribute {
			all = appendAddress(all, value.String())
		}
	}
	return all
}

// ofPath returns what the path of a device's resource says of it: its ID, and those of the devices
// that it is part of.
func ofPath(path resource.Path) []identity {
	var all []identity
	for level, id := range path.Levels() {
		isDevice := level == path.DeviceLevel() && id == path.DeviceID()
		if hosted, ok := kubeletdevice.Parse(path.Name()); ok && isDevice {
			id = hosted.ID
		}
		id, _, _ = strings.Cut(id, replica)
		if isDevice || uuidPattern.MatchString(strings.ToLower(id)) {
			all = appendAddress(appendID(all, id), id)
		}
	}
	return all
}

// replica separates the ID of a device from the number of one of its shares, in what device plugins
// call it.
const replica = "::"

func appendID(all []identity, uuid string) []identity {
	if uuid == "" || slices.Contains(all, ofID(uuid)) {
		return all
	}
	return append(all, ofID(uuid))
}

func appendAddress(all []identity, address string) []identity {
	if found, ok := ofAddress(address); ok && !slices.Contains(all, found) {
		return append(all, found)
	}
	return all
}

// listedDevice returns the device of a resource, as [deviceinfo.DevicesOf] names it last.
func listedDevice(path resource.Path) string { return deviceinfo.TaintedDevice(path.Device()) }
