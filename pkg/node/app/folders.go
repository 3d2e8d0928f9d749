// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"path/filepath"

	"github.com/kubedevice/kubedevice/pkg/node/devicehost"
)

func (o *Options) devicePluginsFolder() string {
	return cmp.Or(o.DevicePluginsFolder, filepath.Join(o.StateFolder, devicehost.FolderName))
}

func (o *Options) registryFolder() string {
	return cmp.Or(o.RegistryFolder, filepath.Join(o.StateFolder, devicehost.RegistryName))
}

// memoryPath is where hosted plugins' devices are remembered.
func (o *Options) memoryPath() string { return filepath.Join(o.StateFolder, devicehost.MemoryName) }

// podResourcesPath is the kubelet's PodResources socket.
func (o *Options) podResourcesPath() string {
	return filepath.Join(o.KubeletFolder, "pod-resources", "kubelet.sock")
}
