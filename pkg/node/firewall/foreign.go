// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"path"
	"slices"
	"strings"
)

// foreign returns the rules by which the vendor's runtime gives no container CDI devices of these
// kinds, which are other vendors'. They hold on a node where nothing else of the vendor is guarded:
// the kubelet allocates its devices, or there are none. More than maxNames names are not read.
func (v *vendor) foreign(kinds []string) *vendor {
	rules := &vendor{name: v.name, foreignKinds: kinds, mountPaths: v.mountPaths}
	for _, r := range v.readers {
		if !r.extends {
			rules.readers = append(rules.readers, reader{
				names: r.names, takes: r.takes, harmful: true, permits: func(value string) bool {
					names, all := splitList(value)
					return all && !slices.ContainsFunc(names, func(name string) bool { return hasKind(kinds, name) })
				},
			})
		}
	}
	return rules
}

// foreignMount returns the CDI device that a mount at the path, in its shortest form, names to the
// vendor's runtime, or "". It is one of START/cdi/VENDOR/CLASS/DEVICE and
// START/cdi/VENDOR/CLASS=DEVICE (nvidia-container-toolkit, internal/config/image, qualifiedName).
func (v *vendor) foreignMount(clean string) string {
	for _, start := range v.mountPaths {
		name, is := strings.CutPrefix(clean, path.Join(start, "cdi")+"/")
		if !is {
			continue
		}
		parts := strings.SplitN(name, "/", 3)
		if len(parts) == 3 && !strings.Contains(parts[1], "=") {
			name = parts[0] + "/" + parts[1] + "=" + parts[2]
		}
		return name
	}
	return ""
}
