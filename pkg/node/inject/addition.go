// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inject turns what device plugins want a container to have into bytes that are appended to the container's
// CreateContainerRequest.
//
// Appending suffices because protobuf merges a message that occurs twice: repeated fields grow, maps take the later entry.
// Nothing that the kubelet sent is re-encoded, so fields that are newer than this program survive.
//
// What can collide, and what then happens:
//
//   - A device or mount that two plugins add: once if it is the same, an error if it differs.
//   - A device or mount at a container path where the pod has one: nothing to add if it is the same, an error if it
//     differs.
//   - An environment variable that two plugins set: once if the value is the same, an error if it differs.
//   - An environment variable that the pod or its image sets: the plugin's value wins, as it stands last. A pod must not be
//     able to name other devices than it was given.
//
// Host paths come from plugins alone, never from an annotation. They are checked: absolute, in their shortest form, there,
// and, where a device is announced, a device node and no symbolic link.
package inject

import (
	"io/fs"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// Addition is what one plugin adds to a container.
type Addition struct {
	// Plugin is the plugin's name, for errors.
	Plugin string
	// Devices are paths of device nodes. The container gets each at the same path, with permissions mrw.
	Devices []string
	// Mounts are bind mounts.
	Mounts []device.Mount
	// Envs are environment variables.
	Envs map[string]string
}

// Host is the part of the node's file system that plugins may name.
type Host interface {
	// Lstat describes the file at an absolute path without following a symbolic link in its last element.
	Lstat(path string) (fs.FileInfo, error)
}
