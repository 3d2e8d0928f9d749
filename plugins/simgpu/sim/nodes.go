// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// deviceMode lets any user of a container open the device that the container was given.
const deviceMode = 0o666

// makeNodes makes the directory hold a device node for each name, and no other character devices.
// What is right already is left alone.
func makeNodes(dir string, names []string, first DeviceNumber) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory of simulated GPUs: %w", err)
	}
	wanted := map[string]bool{}
	for i, name := range names {
		wanted[name] = true
		if err := makeNode(filepath.Join(dir, name), DeviceNumber{first.Major, first.Minor + uint32(i)}); err != nil {
			return fmt.Errorf("make the device node of simulated GPU %q: %w", name, err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read the directory of simulated GPUs: %w", err)
	}
	for _, entry := range entries {
		if entry.Type()&fs.ModeCharDevice == 0 || wanted[entry.Name()] {
			continue
		}
		if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
			return fmt.Errorf("remove the device node of a simulated GPU that is gone: %w", err)
		}
	}
	return nil
}

func makeNode(path string, number DeviceNumber) error {
	device := unix.Mkdev(number.Major, number.Minor)
	var stat unix.Stat_t
	err := unix.Lstat(path, &stat)
	switch {
	case err == nil && stat.Mode&unix.S_IFMT == unix.S_IFCHR && uint64(stat.Rdev) == device:
		return nil
	case err == nil && stat.Mode&unix.S_IFMT != unix.S_IFCHR:
		return fmt.Errorf("%s is there and is no character device: remove it", path)
	case err == nil:
		if err := os.Remove(path); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	if err := unix.Mknod(path, unix.S_IFCHR|deviceMode, int(device)); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w (it takes root with CAP_MKNOD)", err)
		}
		return &fs.PathError{Op: "mknod", Path: path, Err: err}
	}
	return os.Chmod(path, deviceMode) // despite the umask
}
