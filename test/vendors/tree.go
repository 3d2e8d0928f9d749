// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package vendors

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tree is what /sys and /dev have, by path.
type tree map[string]entry

// entry is one of: a file, a symbolic link, a character device, a directory that nothing else is
// known to be in.
type entry struct {
	content      string
	link         string
	major, minor uint32
	directory    bool
}

// Major numbers of the simulated devices: Linux leaves 120 to 127 to experiments, so no driver is
// behind them.
const (
	majorGPU uint32 = 120 + iota
	majorNPU
	majorSGX
	majorDSA
	majorDLB
	majorQAT
	majorFPGA
	majorNVIDIA
)

// majorRDMA is of the numbers 60 to 63, which Linux leaves to experiments as well.
const majorRDMA uint32 = 60

// pci adds a PCI device on a NUMA node and returns its directory. files are what the directory has
// besides, by name.
func (t tree) pci(address string, numa int, files map[string]string) string {
	directory := "/sys/devices/pci" + address[:len("0000:00")] + "/" + address
	for name, content := range files {
		t[directory+"/"+name] = entry{content: content}
	}
	t[directory+"/numa_node"] = entry{content: strconv.Itoa(numa)}
	t[directory+"/local_cpulist"] = entry{content: strconv.Itoa(numa)}
	t["/sys/bus/pci/devices/"+address] = entry{link: directory}
	return directory
}

// driver binds a PCI device to a driver.
func (t tree) driver(directory, name string) {
	driver := "/sys/bus/pci/drivers/" + name
	t[driver] = entry{directory: true}
	t[directory+"/driver"] = entry{link: driver}
	t[driver+"/"+filepath.Base(directory)] = entry{link: directory}
}

// node adds the device node of a device that /sys has a directory of.
func (t tree) node(path string, major, minor uint32, directory string) {
	t[path] = entry{major: major, minor: minor}
	number := fmt.Sprintf("%d:%d", major, minor)
	t["/dev/char/"+number] = entry{link: path}
	t["/sys/dev/char/"+number] = entry{link: directory}
	t[directory+"/dev"] = entry{content: number}
}

// write makes what is below a directory of the tree in a directory of the machine. What is there
// already is replaced.
func (t tree) write(from, to string) error {
	for path, e := range t {
		name, ok := strings.CutPrefix(path, from+"/")
		if !ok {
			continue
		}
		if err := e.write(filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}

func (e entry) write(path string) error {
	if e.directory {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	switch {
	case e.link != "":
		return os.Symlink(e.link, path)
	case e.major != 0:
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(e.major, e.minor))); err != nil {
			return &fs.PathError{Op: "mknod", Path: path, Err: err}
		}
		return os.Chmod(path, 0o666) // despite the process's umask
	default:
		return os.WriteFile(path, []byte(e.content+"\n"), 0o644)
	}
}
