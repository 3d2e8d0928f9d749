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

// ofContainers are the names in /dev that every container has of its own, and those that LXC keeps there. Container runtimes leave
// them out of a folder, whichever it is.
var ofContainers = []string{"console", "fd", "mqueue", "pts", "shm", ".lxc", ".lxd-mounts", ".udev"}

// nodesIn returns the paths, from the folder on, of the device nodes in a folder and in those below it, in order: those that
// container runtimes give a container when the kubelet names the folder. Symbolic links lead nowhere here. A folder without any
// is an error: the container would start without its device.
func nodesIn(host HostFS, folder string) ([]string, error) {
	nodes, err := walk(host, folder, "")
	if err == nil && len(nodes) == 0 {
		err = errors.New("the folder has no device nodes")
	}
	return nodes, err
}

// walk returns the device nodes in below, a folder in folder.
func walk(host HostFS, folder, below string) (nodes []string, err error) {
	entries, err := host.ReadDir(path.Join(folder, below))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path.Join(folder, below), cause(err))
	}
	for _, entry := range entries {
		at := path.Join(below, entry.Name())
		switch mode := entry.Type(); {
		case slices.Contains(ofContainers, entry.Name()):
		case mode.IsDir():
			inside, err := walk(host, folder, at)
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
