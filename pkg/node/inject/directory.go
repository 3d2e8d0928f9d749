// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
)

// containerDeviceNames are the names in /dev that every container has of its own, and those that
// LXC keeps there. Container runtimes leave them out of every directory.
var containerDeviceNames = []string{"console", "fd", "mqueue", "pts", "shm", ".lxc", ".lxd-mounts", ".udev"}

// nodesIn returns the paths, relative to the directory and in order, of the device nodes in it and
// below it: those that container runtimes give a container when the kubelet names the directory.
// Symbolic links are not followed. A directory without any is an error: the container would start
// without its device.
func nodesIn(host HostFS, directory string) ([]string, error) {
	nodes, err := walk(host, directory, "")
	if err == nil && len(nodes) == 0 {
		err = errors.New("the directory has no device nodes")
	}
	return nodes, err
}

// walk returns the device nodes in below, a directory in directory.
func walk(host HostFS, directory, below string) (nodes []string, err error) {
	entries, err := host.ReadDir(path.Join(directory, below))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path.Join(directory, below), cause(err))
	}
	for _, entry := range entries {
		at := path.Join(below, entry.Name())
		switch mode := entry.Type(); {
		case slices.Contains(containerDeviceNames, entry.Name()):
		case mode.IsDir():
			inside, err := walk(host, directory, at)
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // one that has just gone
				return nil, err
			}
			nodes = append(nodes, inside...)
		case mode&fs.ModeDevice != 0:
			nodes = append(nodes, at)
		}
	}
	return nodes, nil
}
