// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cgroup gives a test cluster its own part of the machine's cgroups, on version 1 and on
// version 2, finds every process in it, and takes it away again.
//
// The cgroups are what makes a cluster that was interrupted half way possible to clean up: every
// sandbox (see package sandbox) is put in before it does anything, so every process of a cluster is
// found here, whether or not its launcher lived to write it down.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// DefaultMount is where Linux systems mount their cgroups.
const DefaultMount = "/sys/fs/cgroup"

// Tree is one cluster's own part of the machine's cgroups: a cgroup of the same name in each
// hierarchy. Version 2 has one hierarchy. Version 1 has one for each controller, often with one of
// version 2 in addition that has no controllers; runc makes cgroups in that one as well.
type Tree struct {
	name        string
	hierarchies []string
	unified     bool
}

// Open finds the machine's cgroup hierarchies below mount. The tree's own cgroups need not exist
// yet.
func Open(mount, name string) (*Tree, error) {
	kind, err := filesystem(mount)
	if err != nil {
		return nil, fmt.Errorf("find the machine's cgroups: %w", err)
	}
	if kind == unix.CGROUP2_SUPER_MAGIC {
		return &Tree{name: name, hierarchies: []string{mount}, unified: true}, nil
	}
	entries, err := os.ReadDir(mount)
	if err != nil {
		return nil, fmt.Errorf("find the machine's cgroups: %w", err)
	}
	tree := &Tree{name: name}
	for _, entry := range entries {
		if !entry.IsDir() { // a link such as cpu -> cpu,cpuacct names a hierarchy a second time
			continue
		}
		hierarchy := filepath.Join(mount, entry.Name())
		kind, err := filesystem(hierarchy)
		if err == nil && (kind == unix.CGROUP_SUPER_MAGIC || kind == unix.CGROUP2_SUPER_MAGIC) {
			tree.hierarchies = append(tree.hierarchies, hierarchy)
		}
	}
	if len(tree.hierarchies) == 0 {
		return nil, fmt.Errorf("find the machine's cgroups: nothing is mounted at %s: mount cgroup2 there", mount)
	}
	return tree, nil
}

func filesystem(path string) (int64, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return int64(stat.Type), nil
}

// Unified says whether the machine has cgroups of version 2 only.
func (t *Tree) Unified() bool { return t.unified }

// Sub is the part of the tree below a cgroup of it.
func (t *Tree) Sub(name string) *Tree {
	return &Tree{name: filepath.Join(t.name, name), hierarchies: t.hierarchies, unified: t.unified}
}

// Path is the cgroup of this name below the tree's own, as a kubelet's cgroupRoot is written: from
// the root of the hierarchy.
func (t *Tree) Path(name string) string { return filepath.Join("/", t.name, name) }

// Make creates a cgroup below the tree's own, and those above it, in every hierarchy, ready to take
// processes or cgroups.
func (t *Tree) Make(name string) error {
	for _, hierarchy := range t.hierarchies {
		parent := hierarchy
		for _, step := range split(t.Path(name)) {
			child := filepath.Join(parent, step)
			if err := t.makeOne(parent, child); err != nil {
				return fmt.Errorf("make cgroup %s: %w", child, err)
			}
			parent = child
		}
	}
	return nil
}

func (t *Tree) makeOne(parent, child string) error {
	if t.unified {
		if err := enableControllers(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(child, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if t.unified {
		return nil
	}
	return inheritCPUSet(parent, child)
}
