// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

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
	named, tooMany := 0, false
	annotation := func(key, value, object string) {
		const format = "the annotation %s (%s) of %s"
		if !ReadsAnnotation(key) || tooMany {
			return
		}
		names, all := splitList(value)
		if named += len(names); (!all || named > maxNames) && g.Active() {
			tooMany = true // the rest would only take time
			add(ownName, ByAnnotation, "the annotations of %s, which name more than %d devices", object, maxNames)
			return
		}
		for _, name := range names {
			if namesFiles(key) {
				file := hostFile(name)
				if vendor := owners.vendorOf(file); vendor != "" {
					add(vendor, ByAnnotation, format, key, file, object)
				}
			} else if kind, _, _ := strings.Cut(name, "="); kind == cdi.VariablesKind {
				add(ownName, ByAnnotation, format, key, name, object)
			}
		}
		for _, v := range g.vendors {
			if name := v.namedBy(names); namesCDI(key) && name != "" {
				add(v.name, ByAnnotation, format, key, name, object)
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
			at := mount.GetContainerPath()
			has := func(injection KubeletInjection) bool { return slices.Contains(injection.Mounts, at) }
			if v.isList(at) && !c.isInjected(v.vendor, has) {
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
			isAllocated := func(injection KubeletInjection) bool { return injection.Annotations[key] == value }
			names, all := splitList(value)
			if name := v.namedBy(names); (name != "" || !all) && !c.isInjected(v.vendor, isAllocated) {
				add(v.name, ByCDI, "the CDI device %s from the kubelet", cmp.Or(name, key))
			}
		}
		for _, device := range c.Config.GetCDIDevices() {
			if name := device.GetName(); hasKind(v.cdiKinds, name) && !g.isPrepared(v, c, name) {
				add(v.name, ByCDI, "the CDI device %s from the kubelet", name)
			}
		}
	}
	slices.SortFunc(attempts, func(a, b Attempt) int { return strings.Compare(a.Text, b.Text) })
	return slices.CompactFunc(attempts, func(a, b Attempt) bool { return a.Text == b.Text })
}

// RefusedVolumes returns the attempts by volumes of its image that a container is refused for.
func (g *Guard) RefusedVolumes(c Container) []Attempt {
	var attempts []Attempt
	for _, volume := range slices.Sorted(slices.Values(c.ImageVolumes)) {
		at := path.Join("/", volume)
		if slices.ContainsFunc(c.Config.GetMounts(), func(mount *runtimeapi.Mount) bool {
			return path.Clean(mount.GetContainerPath()) == at
		}) {
			continue // the runtime mounts that in its place, and Refused has seen it
		}
		for _, v := range g.vendors {
			if v.isList(at) {
				attempts = append(attempts, Attempt{v.name, ByMount, fmt.Sprintf("the volume of its image at %s", at)})
			}
		}
	}
	return attempts
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

// isInjected reports whether a plugin of the vendor's that is registered with the kubelet gave the
// container that, for a resource that is not managed here.
func (c Container) isInjected(v *vendor, gave func(KubeletInjection) bool) bool {
	return slices.ContainsFunc(c.Kubelet,
		func(injection KubeletInjection) bool { return v.owns(injection.Resource) && gave(injection) })
}

// isPrepared reports whether the kubelet gives the container the CDI device in the right way: from
// a plugin of the vendor's that is registered with it, or for a claim from a driver that gives out
// nothing that is managed here.
func (g *Guard) isPrepared(v guarded, c Container, name string) bool {
	return g.isOtherDriver(v, c.Claimed[name], name) ||
		c.isInjected(v.vendor, func(injection KubeletInjection) bool {
			return slices.Contains(injection.CDIDevices, name)
		})
}

// isOtherDriver reports whether the driver of resource claims that gives out the CDI device gives
// out nothing that is managed here. What is built in or declared on the node says so for each rule.
// A plugin says it for its own rule, and for the domain of a resource of which no more is known:
// it cannot open the devices of another vendor.
func (g *Guard) isOtherDriver(v guarded, driver, device string) bool {
	says := func(by *vendor) bool {
		return hasKind(by.cdiKinds, device) && slices.Contains(by.otherDrivers, driver)
	}
	return says(v.vendor) || slices.ContainsFunc(g.firewall.vendors, says) ||
		v.undeclared && slices.ContainsFunc(g.vendors, func(by guarded) bool {
			return hasKind(within(by.cdiKinds, v.name), device) && says(by.vendor)
		})
}

// within returns the kinds of CDI devices that are of the domain, or of those below it, and of no
// other.
func within(kinds []string, domain string) []string {
	var all []string
	for _, kind := range kinds {
		of, _, _ := strings.Cut(kind, "/")
		of = strings.TrimPrefix(of, "*.")
		if !strings.ContainsAny(of, `*?[\`) && (of == domain || strings.HasSuffix(of, "."+domain)) {
			all = append(all, kind)
		}
	}
	return all
}

// ReadsAnnotation reports whether a pod, or its sandbox, may request devices by an annotation with
// the key.
func ReadsAnnotation(key string) bool { return namesCDI(key) || namesFiles(key) }

// namesCDI reports whether an annotation names CDI devices.
func namesCDI(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return domain == cdiDomain || strings.HasSuffix(domain, "."+cdiDomain)
}

// splitList returns what stands between commas, once, without blanks, and whether that is all: of
// more than maxNames elements it returns none. Empty elements are left out.
func splitList(value string) (names []string, all bool) {
	if strings.Count(value, ",") >= maxNames {
		return nil, false
	}
	for element := range strings.SplitSeq(value, ",") {
		if element = strings.TrimSpace(element); element != "" && !slices.Contains(names, element) {
			names = append(names, element)
		}
	}
	return names, true
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
	if v.foreignKinds != nil {
		return hasKind(v.foreignKinds, v.foreignMount(clean))
	}
	return slices.ContainsFunc(v.mountPaths, func(start string) bool { return strings.HasPrefix(clean, start) })
}
