// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inject turns what device plugins want a container to have into bytes that are appended to
// the container's CreateContainerRequest.
//
// Appending suffices because protobuf merges a message that occurs twice: repeated fields grow,
// maps take the later entry. Nothing that the kubelet sent is encoded again, so fields that are
// newer than this program survive.
//
// Additions are in the order of the plugins, and those of a plugin in its own order. What can
// collide:
//
//   - A device or mount at a path of the container where the pod or a plugin has one: nothing is
//     added if it is the same; an error if it differs. A mount and a device at one path differ.
//   - A device at two paths of the container: it is at both. An error if the permissions differ, as
//     the kernel keeps one set of them for each device.
//   - An environment variable that two plugins set: once if the value is the same; an error if not.
//   - An environment variable that the pod or its image sets: the plugin's value wins, as it is the
//     last one. A pod must not be able to name other devices than it was granted.
//   - An annotation that the container has or another plugin sets: nothing is added if the value is
//     the same; an error if it differs.
//   - A CDI device that the container has or another plugin names: once.
//
// What plugins of the kubelet's API add runs here as it does with the kubelet, where the order is
// by chance; see Addition.KubeletPaths. What the request has already may come from a plugin that is
// registered with the kubelet itself, and counts as added by the first of them:
//
//   - A device that two of them add with different permissions has those of both.
//   - Of two devices, mounts, variables or annotations of theirs at one place the first counts.
//   - A mount at the path of one of the pod's volumes is left out: the volume counts. A device
//     there is added, as the device's node may be the volume.
//   - An annotation that only the kubelet or KubeDevice may set is left out.
//   - The source of a mount that is not there is the runtime's to make, if the plugin has just
//     named it. It may have been there when the plugin answered earlier: then it is an error, so
//     that the plugin is called again.
//
// Host paths come from plugins alone, never from an annotation. They are checked: absolute, in
// their shortest form, existing, without a symbolic link that the plugin did not declare, and, for
// a device, a device node. The runtime gets the path that declared links lead to.
// Addition.KubeletPaths is for plugins that know none of this.
package inject

import (
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// Addition is what one plugin adds to a container.
type Addition struct {
	// Plugin is the plugin's name, for errors.
	Plugin string
	device.Allocation
	// KubeletPaths says that the plugin answers as it does to the kubelet, for which the container
	// runtime interprets paths: they need not be in their shortest form, those of the container may
	// be relative to its root, every symbolic link is followed, and a directory stands for the
	// device nodes in it.
	KubeletPaths bool
	// Fresh says that the plugin has just answered, not at an earlier creation of the container.
	Fresh bool
}

// NewAddition returns what the plugin adds, as a copy that the plugin cannot change later.
func NewAddition(plugin string, allocation device.Allocation) Addition {
	return Addition{Plugin: plugin, Allocation: device.Allocation{
		Devices:     slices.Clone(allocation.Devices),
		Mounts:      slices.Clone(allocation.Mounts),
		Envs:        maps.Clone(allocation.Envs),
		Annotations: maps.Clone(allocation.Annotations),
		CDIDevices:  slices.Clone(allocation.CDIDevices),
		Links:       slices.Clone(allocation.Links),
	}}
}

// HostFS is the part of the node's file system that plugins may name.
type HostFS interface {
	// Lstat describes the file at an absolute path without following a symbolic link in its last
	// element.
	Lstat(path string) (fs.FileInfo, error)
	// Readlink returns the target of a symbolic link.
	Readlink(path string) (string, error)
	// ReadDir returns what is in a directory, sorted by name.
	ReadDir(path string) ([]fs.DirEntry, error)
}

// OS is the file system of this process as a HostFS.
type OS struct{}

// Lstat implements HostFS.
func (OS) Lstat(path string) (fs.FileInfo, error) { return os.Lstat(path) }

// Readlink implements HostFS.
func (OS) Readlink(path string) (string, error) { return os.Readlink(path) }

// ReadDir implements HostFS.
func (OS) ReadDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(path) }
