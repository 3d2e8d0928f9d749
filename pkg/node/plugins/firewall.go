// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// cloneFirewall returns a copy that the plugin cannot change later.
func cloneFirewall(said device.Firewall) device.Firewall {
	return device.Firewall{
		Envs:       maps.Clone(said.Envs),
		CDIKinds:   slices.Clone(said.CDIKinds),
		MountPaths: slices.Clone(said.MountPaths),
	}
}

// CheckFirewall returns why what a plugin says to the firewall cannot be obeyed, or nil.
func CheckFirewall(said device.Firewall) error {
	for _, name := range slices.Sorted(maps.Keys(said.Envs)) {
		if err := inject.CheckEnv(name, said.Envs[name]); err != nil {
			return err
		}
	}
	for _, kind := range said.CDIKinds {
		if _, err := path.Match(kind, ""); err != nil || strings.Count(kind, "/") != 1 {
			return fmt.Errorf("CDI kind %q is not like vendor.com/class", kind)
		}
	}
	for _, start := range said.MountPaths {
		if !path.IsAbs(start) || path.Clean(start) != start || start == "/" {
			return fmt.Errorf("mount path %q is not an absolute path in its shortest form", start)
		}
	}
	return nil
}
