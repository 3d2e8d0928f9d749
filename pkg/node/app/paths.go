// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"path/filepath"

	"github.com/kubedevice/kubedevice/pkg/node/adoption"
	"github.com/kubedevice/kubedevice/pkg/node/devicemanager"
)

func (o *Options) devicePluginsDir() string {
	return filepath.Join(o.StateDir, devicemanager.DirName)
}

func (o *Options) registryDir() string {
	return filepath.Join(o.StateDir, devicemanager.RegistryDirName)
}

// devicesPath is the state file of the kubelet's device plugins.
func (o *Options) devicesPath() string {
	return filepath.Join(o.StateDir, devicemanager.StateFileName)
}

// filesPath is the state file of what plugin files have taken over from the kubelet.
func (o *Options) filesPath() string { return filepath.Join(o.StateDir, adoption.FilesStateName) }

// The files in the state directory.
const (
	grantsFile   = "grants"
	podsFile     = "pods"
	sealsFile    = "sealkeys"
	firewallFile = "firewall"
)

func (o *Options) grantsPath() string { return filepath.Join(o.StateDir, grantsFile) }

func (o *Options) sealsPath() string { return filepath.Join(o.StateDir, sealsFile) }

func (o *Options) podsPath() string { return filepath.Join(o.StateDir, podsFile) }

// firewallPath is the state file of what device plugins said to the firewall.
func (o *Options) firewallPath() string { return filepath.Join(o.StateDir, firewallFile) }
