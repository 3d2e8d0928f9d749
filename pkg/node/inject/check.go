// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// checkPath demands the one form in which a path can be compared with others.
func checkPath(p string) error {
	switch {
	case !path.IsAbs(p):
		return fmt.Errorf("path %q is not absolute", p)
	case path.Clean(p) != p:
		return fmt.Errorf("path %q is not in its shortest form %q", p, path.Clean(p))
	case strings.ContainsRune(p, 0):
		return fmt.Errorf("path %q has a NUL character", p)
	case p == "/":
		return errors.New("path / is the whole file system")
	}
	return nil
}

// checkDevice demands a device node at the path.
func checkDevice(host Host, p string) error {
	if err := checkPath(p); err != nil {
		return fmt.Errorf("device: %w", err)
	}
	info, err := host.Lstat(p)
	if err != nil {
		return fmt.Errorf("device %s: %w", p, errors.Unwrap(err))
	}
	switch {
	case info.Mode()&fs.ModeDevice != 0:
		return nil
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("device %s is a symbolic link; the plugin must name the device node itself", p)
	default:
		return fmt.Errorf("device %s is not a device node (%v)", p, info.Mode())
	}
}

// checkMount demands a source that is there and paths that can be compared.
func checkMount(host Host, mount device.Mount) error {
	if err := checkPath(mount.ContainerPath); err != nil {
		return fmt.Errorf("mount target: %w", err)
	}
	if err := checkPath(mount.HostPath); err != nil {
		return fmt.Errorf("mount source: %w", err)
	}
	if _, err := host.Lstat(mount.HostPath); err != nil {
		return fmt.Errorf("mount source %s: %w", mount.HostPath, errors.Unwrap(err))
	}
	return nil
}

// checkEnv demands a name and a value that a process can be started with.
func checkEnv(name, value string) error {
	if name == "" || strings.ContainsAny(name, "=\x00") {
		return fmt.Errorf("environment variable %q: not a valid name", name)
	}
	if strings.ContainsRune(value, 0) {
		return fmt.Errorf("environment variable %s: its value has a NUL character", name)
	}
	return nil
}
