// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// own are the directories of the root that a sandbox does not share with the machine. shared are
// those that it may write to; all others it can only read.
var (
	own    = []string{"dev", "proc", "run", "var"}
	shared = []string{"sys", "tmp"}
)

// buildRoot gives the calling process, which has a mount namespace of its own, the root filesystem
// of a sandbox.
func buildRoot(s spec) error {
	steps := []struct {
		what string
		do   func() error
	}{
		{"part from the machine's mounts", func() error {
			return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}},
		{"mount a root", func() error { return mountRoot(s.Root) }},
		{"share the machine's directories", func() error { return bindMachine(s.Root) }},
		{"furnish /var", func() error { return furnishVar(s) }},
		{"furnish /run", func() error { return mountMemory(filepath.Join(s.Root, "run")) }},
		{"furnish /dev", func() error { return furnishDev(filepath.Join(s.Root, "dev")) }},
		{"show directories", func() error { return showDirectories(s) }},
		{"close the root", func() error { return mount("", s.Root, "", unix.MS_PRIVATE, "") }},
		{"furnish /proc", func() error { return furnishProc(filepath.Join(s.Root, "proc")) }},
		{"move into the root", func() error { return pivot(s.Root) }},
		{"share mounts inside", func() error { // as kubelets need it for volumes
			return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
		}},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

func mountMemory(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	return mount("tmpfs", path, "tmpfs", 0, "mode=755")
}

// mountRoot mounts an empty root that stays out of recursive bind mounts until it is closed: the
// machine's directories, which are about to be bound below it, hold the mount point.
func mountRoot(root string) error {
	if err := mountMemory(root); err != nil {
		return err
	}
	return mount("", root, "", unix.MS_UNBINDABLE, "")
}

// bindMachine makes the machine's top-level directories appear in the root, but for those that a
// sandbox has of its own.
func bindMachine(root string) error {
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		source, target := filepath.Join("/", entry.Name()), filepath.Join(root, entry.Name())
		switch {
		case slices.Contains(own, entry.Name()):
		case entry.Type()&fs.ModeSymlink != 0:
			destination, err := os.Readlink(source)
			if err != nil {
				return err
			}
			if err := os.Symlink(destination, target); err != nil {
				return err
			}
		case entry.IsDir():
			if err := bind(source, target); err != nil {
				return err
			}
			if slices.Contains(shared, entry.Name()) {
				continue
			}
			if err := protect(target); err != nil {
				return err
			}
		}
	}
	return nil
}

// protect makes a mount, and those below it, read-only.
func protect(path string) error {
	err := unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	if err != nil {
		return &fs.PathError{Op: "mount read-only", Path: path, Err: err}
	}
	return nil
}

func furnishVar(s spec) error {
	for _, directory := range []string{"cache", "lib", "log", "tmp"} {
		if err := os.MkdirAll(filepath.Join(s.Var, directory), 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink("/run", filepath.Join(s.Var, "run")); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return bind(s.Var, filepath.Join(s.Root, "var"))
}

// showDirectories puts the directories that must be visible at their paths, to be read and written,
// over what is there by now.
func showDirectories(s spec) error {
	for _, directory := range s.Visible {
		if err := bind(directory, filepath.Join(s.Root, directory)); err != nil {
			return err
		}
	}
	return nil
}

func pivot(root string) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil { // the old root is now mounted on top of the new one
		return &fs.PathError{Op: "pivot_root", Path: root, Err: err}
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return &fs.PathError{Op: "unmount the old root at", Path: root, Err: err}
	}
	return os.Chdir("/")
}

func bind(source, target string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	return mount(source, target, "", unix.MS_BIND|unix.MS_REC, "")
}

func mount(source, target, kind string, flags uintptr, options string) error {
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		return &fs.PathError{Op: "mount", Path: target, Err: err}
	}
	return nil
}
