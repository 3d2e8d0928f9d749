// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"path/filepath"

	"github.com/kubedevice/kubedevice/pkg/node/devicemanager"
	"github.com/kubedevice/kubedevice/pkg/node/podresources"
)

func (o *Options) devicePluginsFolder() string {
	return cmp.Or(o.DevicePluginsFolder, filepath.Join(o.StateFolder, devicemanager.DirName))
}

func (o *Options) registryFolder() string {
	return cmp.Or(o.RegistryFolder, filepath.Join(o.StateFolder, devicemanager.RegistryDirName))
}

// memoryPath is where hosted plugins' devices are remembered.
func (o *Options) memoryPath() string {
	return filepath.Join(o.StateFolder, devicemanager.StateFileName)
}

// podResourcesPath is the socket at which agents ask who holds what.
func (o *Options) podResourcesPath() string {
	return filepath.Join(cmp.Or(o.PodResourcesFolder, filepath.Join(o.StateFolder, podresources.DirName)), podresources.SocketName)
}

// kubeletPodResourcesPath is the kubelet's own socket of this kind.
func (o *Options) kubeletPodResourcesPath() string {
	return filepath.Join(o.KubeletFolder, podresources.DirName, podresources.SocketName)
}
