// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// enableControllers hands all controllers that a cgroup of version 2 has on to the cgroups below
// it.
func enableControllers(parent string) error {
	available, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, controller := range strings.Fields(string(available)) {
		err := os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+"+controller), 0)
		if errors.Is(err, unix.EBUSY) {
			return fmt.Errorf(
				"hand controller %s on: processes live in %s itself, as in a container: move them into a cgroup "+
					"below it first: %w", controller, parent, err)
		}
		if err != nil {
			return fmt.Errorf("hand controller %s on: %w", controller, err)
		}
	}
	return nil
}

// inheritCPUSet fills a new cgroup of version 1's cpuset hierarchy, which starts empty and takes no
// process before it has processors and memory nodes. In the other hierarchies there is nothing to
// do.
func inheritCPUSet(parent, child string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		current, err := os.ReadFile(filepath.Join(child, file))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(current)) > 0 {
			continue
		}
		inherited, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(child, file), inherited, 0); err != nil {
			return err
		}
	}
	return nil
}

func split(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == filepath.Separator })
}
