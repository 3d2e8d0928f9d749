// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/node/cdi"
)

// ownName stands for this program among the vendors.
const ownName = "kubedevice.io"

// The annotations by which a pod names CDI devices. Vendors put a word of their own before the
// domain.
const cdiDomain = "cdi.k8s.io"

// maxNames is how many devices the annotations of a pod may name. Each is compared with the node's
// devices while the container runtime waits, which some give a second for.
const maxNames = 64

// Refused returns the attempts that a container is refused for, other than by variables.
func (g *Guard) Refused(c Container) []Attempt {
	var attempts []Attempt
	add := func(vendor string, way Way, format string, args ...any) {
		attempts = append(attempts, Attempt{vendor, way, fmt.Sprintf(format, args...)})
	}
	owners := fileOwners{g, map[*vendor][]DeviceNumber{}}
	named := 0
	annotation := func(key, value, of string) {
		const format = "the annotation %s (%s) of %s"
		if !namesCDI(key) && !namesFiles(key) {
			return
		}
		names := list(value)
		if named += len(names); named > maxNames && g.Active() {
			add(ownName, ByAnnotation, "the annotations of %s, which name more than %d devices", of, maxNames)
			return
		}
		for _, name := range names {
			if namesFiles(key) {
				file := hostFile(name)
				if vendor := owners.of(file); vendor != "" {
					add(vendor, ByAnnotation, format, key, file, of)
				}
			} else if kind, _, _ := strings.Cut(name, "="); kind == cdi.VariablesKind {
				add(ownName, ByAnnotation, format, key, name, of)
			}
		}
		for _, v := range g.vendors {
			if name := v.namedBy(names); namesCDI(key) && name != "" {
				add(v.name, ByAnnotation, format, key, name, of)
			}
		}
	}
	for key, value := range c.PodAnnotations {
		annotation(key, value, "the pod")
	}
	for key, value := range c.SandboxAnnotations {
		if now, is := c.PodAnnotations[key]; !is || now != value {
			annotation(key, value, "the pod's sandbox")
		}
	}
	for _, v := range g.vendors {
		for _, mount := range c.Config.GetMounts() {
			if at := mount.GetContainerPath(); v.isList(at) && !c.isGift(v.vendor, func(gift Gift) bool {
				return slices.Contains(gift.Mounts, at)
			}) {
				add(v.name, ByMount, "the mount at %s", at)
			}
		}
		if !v.managed {
			continue
		}
		for key, value := range c.Config.GetAnnotations() {
			if !namesCDI(key) {
				continue
			}
			if name := v.namedBy(list(value)); name != "" && !c.isGift(v.vendor, func(gift Gift) bool {
				return gift.Annotations[key] == value
			}) {
				add(v.name, ByCDI, "the CDI device %s from the kubelet", name)
			}
		}
		for _, device := range c.Config.GetCDIDevices() {
			if name := device.GetName(); hasKind(v.cdiKinds, name) && !c.isPrepared(v.vendor, name) {
				add(v.name, ByCDI, "the CDI device %s from the kubelet", name)
			}
		}
	}
	slices.SortFunc(attempts, func(a, b Attempt) int { return strings.Compare(a.Text, b.Text) })
	return slices.CompactFunc(attempts, func(a, b Attempt) bool { return a.Text == b.Text })
}

// NeedsClaims reports whether it depends on the drivers of the pod's resource claims whether the
// container is refused.
func (g *Guard) NeedsClaims(c Container) bool {
	return slices.ContainsFunc(g.vendors, func(v guarded) bool {
		for _, device := range c.Config.GetCDIDevices() {
			if v.managed && hasKind(v.cdiKinds, device.GetName()) {
				return true
			}
		}
		return false
	})
}

// isGift reports whether a plugin of the vendor's that is registered with the kubelet gave the
// container that, for a resource that is not managed here.
func (c Container) isGift(v *vendor, gave func(Gift) bool) bool {
	return slices.ContainsFunc(c.Kubelet, func(gift Gift) bool { return v.owns(gift.Resource) && gave(gift) })
}

// isPrepared reports whether the kubelet gives the container the CDI device in the right way: from
// a plugin of the vendor's that is registered with it, or for a claim from a driver that gives out
// nothing that is managed here.
func (c Container) isPrepared(v *vendor, name string) bool {
	return slices.Contains(v.otherDrivers, c.Claimed[name]) ||
		c.isGift(v, func(gift Gift) bool { return slices.Contains(gift.CDIDevices, name) })
}

// namesCDI reports whether an annotation names CDI devices.
func namesCDI(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return domain == cdiDomain || strings.HasSuffix(domain, "."+cdiDomain)
}

// list returns what stands between commas, once, without blanks. Empty elements are left out.
func list(value string) []string {
	var all []string
	seen := map[string]bool{}
	for element := range strings.SplitSeq(value, ",") {
		if element = strings.TrimSpace(element); element != "" && !seen[element] {
			seen[element] = true
			all = append(all, element)
		}
	}
	return all
}

// namedBy returns which of the CDI devices that an annotation names is the vendor's, or "". A name
// without a kind is taken for a device of the vendor whose runtime reads it.
func (v *vendor) namedBy(names []string) string {
	for _, name := range names {
		if hasKind(v.cdiKinds, name) || len(v.cdiKinds) > 0 && !strings.Contains(name, "=") {
			return name
		}
	}
	return ""
}

// isList reports whether a mount at the path names one of the vendor's devices.
func (v *vendor) isList(containerPath string) bool {
	clean := path.Clean(containerPath)
	return slices.ContainsFunc(v.mountPaths, func(start string) bool { return strings.HasPrefix(clean, start) })
}
