// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inject turns what device plugins want a container to have into bytes that are appended to the container's
// CreateContainerRequest.
//
// Appending suffices because protobuf merges a message that occurs twice: repeated fields grow, maps take the later entry.
// Nothing that the kubelet sent is re-encoded, so fields that are newer than this program survive.
//
// Additions stand in the order of the plugins, and each plugin's in the plugin's own order. What can collide, and what then
// happens:
//
//   - A device or mount at a path of the container where the pod or a plugin has one: nothing to add if it is the same, an
//     error if it differs. A mount and a device at one path differ.
//   - A device at two paths of the container: at both. An error if the permissions differ, as the kernel keeps one set of
//     them for each device.
//   - An environment variable that two plugins set: once if the value is the same, an error if it differs.
//   - An environment variable that the pod or its image sets: the plugin's value wins, as it stands last. A pod must not be
//     able to name other devices than it was given.
//   - An annotation that the container has or another plugin sets: nothing to add if the value is the same, an error if it
//     differs.
//   - A CDI device that the container has or another plugin names: once.
//
// Host paths come from plugins alone, never from an annotation. They are checked: absolute, in their shortest form, there,
// without a symbolic link that the plugin did not declare, and, where a device is announced, a device node. The runtime is
// given the path that declared links lead to. Addition.KubeletPaths is for plugins that know none of this.
package inject

import (
	"io/fs"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// Addition is what one plugin adds to a container.
type Addition struct {
	// Plugin is the plugin's name, for errors.
	Plugin string
	device.Allocation
	// KubeletPaths says that the plugin names paths as it does to the kubelet, for which the container runtime makes something
	// of them: every symbolic link is followed, and a device that is a folder stands for the device nodes in it.
	KubeletPaths bool
}

// HostFS is the part of the node's file system that plugins may name.
type HostFS interface {
	// Lstat describes the file at an absolute path without following a symbolic link in its last element.
	Lstat(path string) (fs.FileInfo, error)
	// Readlink returns where a symbolic link points.
	Readlink(path string) (string, error)
	// ReadDir returns what is in a folder, sorted by name.
	ReadDir(path string) ([]fs.DirEntry, error)
}
