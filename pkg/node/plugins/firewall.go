// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"errors"
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// cloneFirewall returns a copy that the plugin cannot change later.
func cloneFirewall(said device.Firewall) device.Firewall {
	return device.Firewall{
		Envs: maps.Clone(said.Envs), CDIKinds: slices.Clone(said.CDIKinds), MountPaths: slices.Clone(said.MountPaths),
		Variables: slices.Clone(said.Variables), DeviceFiles: slices.Clone(said.DeviceFiles),
		OtherDrivers: slices.Clone(said.OtherDrivers),
	}
}

// CheckFirewall returns why what a plugin says to the firewall cannot be obeyed, or nil.
func CheckFirewall(said device.Firewall) error {
	for _, name := range slices.Sorted(maps.Keys(said.Envs)) {
		if err := inject.CheckEnv(name, said.Envs[name]); err != nil {
			return err
		}
	}
	for _, variable := range said.Variables {
		declared := firewall.Variable{
			Name: variable.Name, Nothing: variable.Nothing, Takes: firewall.Takes(variable.Takes),
		}
		if err := declared.Validate(); err != nil {
			return err
		}
	}
	return errors.Join(
		checkEach(said.CDIKinds, firewall.CheckCDIKind), checkEach(said.MountPaths, firewall.CheckMountPath),
		checkEach(said.DeviceFiles, firewall.CheckDeviceFile), checkEach(said.OtherDrivers, firewall.CheckDriver))
}

// checkEach returns the first error of check.
func checkEach(all []string, check func(string) error) error {
	for _, one := range all {
		if err := check(one); err != nil {
			return err
		}
	}
	return nil
}

// isEmpty reports whether a plugin says nothing to the firewall.
func isEmpty(said device.Firewall) bool {
	return len(said.Envs)+len(said.CDIKinds)+len(said.MountPaths)+len(said.Variables)+len(said.DeviceFiles)+
		len(said.OtherDrivers) == 0
}
