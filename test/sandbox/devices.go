// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// nodes are the device nodes that a container runtime and a kubelet expect: null and its kin for
// containers, kmsg, where the kubelet reads of processes that the kernel killed.
var nodes = []struct {
	name         string
	major, minor uint32
}{
	{"null", 1, 3},
	{"zero", 1, 5},
	{"full", 1, 7},
	{"random", 1, 8},
	{"urandom", 1, 9},
	{"kmsg", 1, 11},
	{"tty", 5, 0},
}

// links are the usual symbolic links of /dev.
var links = map[string]string{
	"fd":     "/proc/self/fd",
	"stdin":  "/proc/self/fd/0",
	"stdout": "/proc/self/fd/1",
	"stderr": "/proc/self/fd/2",
	"ptmx":   "pts/ptmx",
}

// furnishDev makes a /dev in memory, so that device nodes which are made in a sandbox are gone with
// it.
func furnishDev(dev string) error {
	if err := mountMemory(dev); err != nil {
		return err
	}
	unix.Umask(0)
	defer unix.Umask(0o022)
	for _, node := range nodes {
		path := filepath.Join(dev, node.name)
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(node.major, node.minor))); err != nil {
			return &fs.PathError{Op: "mknod", Path: path, Err: err}
		}
	}
	for name, destination := range links {
		if err := os.Symlink(destination, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	for name, kind := range map[string]string{"pts": "devpts", "shm": "tmpfs"} {
		path := filepath.Join(dev, name)
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
		options := "mode=1777"
		if kind == "devpts" {
			options = "newinstance,ptmxmode=0666,mode=0620"
		}
		if err := mount(kind, path, kind, 0, options); err != nil {
			return err
		}
	}
	return nil
}

// sysctls are what a kubelet writes and what belongs to the whole machine: a sandbox has plain
// files in their places.
var sysctls = []string{
	"kernel/keys/root_maxbytes",
	"kernel/keys/root_maxkeys",
	"kernel/panic",
	"kernel/panic_on_oops",
	"vm/overcommit_memory",
	"vm/panic_on_oom",
}

// furnishProc mounts a /proc that shows the sandbox's processes and leaves the machine's sysctls
// alone.
func furnishProc(proc string) error {
	shadows := proc + "-sysctls"
	if err := os.MkdirAll(proc, 0o555); err != nil {
		return err
	}
	if err := mount("proc", proc, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	for _, sysctl := range sysctls {
		value, err := os.ReadFile(filepath.Join(proc, "sys", sysctl))
		if err != nil {
			return err
		}
		shadow := filepath.Join(shadows, sysctl)
		if err := os.MkdirAll(filepath.Dir(shadow), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(shadow, value, 0o644); err != nil {
			return err
		}
		if err := mount(shadow, filepath.Join(proc, "sys", sysctl), "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}
