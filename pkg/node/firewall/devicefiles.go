// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// criODevices are the annotations by which a pod names device files, where CRI-O's configuration
// allows that.
var criODevices = []string{"io.kubernetes.cri-o.Devices", "devices.crio.io"}

// plainDevices are device files that are no vendor's. CRI-O allows the first ones by default.
var plainDevices = []string{
	"/dev/fuse", "/dev/net/tun", "/dev/kvm", "/dev/vhost-net", "/dev/vhost-vsock", "/dev/null", "/dev/zero",
	"/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/loop-control",
}

// miscMajor is the major number that devices of many drivers share.
const miscMajor = 10

// DeviceNumber identifies a device file, under any path.
type DeviceNumber struct {
	Block        bool
	Major, Minor uint32
}

// DeviceFiles are the device files of the node.
type DeviceFiles interface {
	// Number returns what the file at the path is, through symbolic links. Its error says that
	// there is none, or that it is no device file.
	Number(path string) (DeviceNumber, error)
	// Glob returns the paths that match a pattern, as of filepath.Glob.
	Glob(pattern string) []string
	// Made returns when the file at the path was made, and whether there is one.
	Made(path string) (at time.Time, ok bool)
}

// has reports whether the node has the file.
func (f *Firewall) has(path string) bool {
	_, ok := f.options.Files.Made(path)
	return ok
}

// loadTimeout is how long it may take from the creation of a container until its start has loaded
// the driver and made its files, as NVIDIA's runtime does for the first one after a boot.
const loadTimeout = 5 * time.Minute

// hadDevices reports whether a container that was created at a time may have got devices of the
// vendor when it started: files of its driver were there by then, or the node has none. At the zero
// time, which is not known, it may.
func (f *Firewall) hadDevices(v *vendor, at time.Time) bool {
	none := true
	if at.IsZero() {
		return true
	}
	for _, path := range v.files {
		made, ok := f.options.Files.Made(path)
		if ok && !made.After(at.Add(loadTimeout)) {
			return true
		}
		none = none && !ok
	}
	return none
}

// namesFiles reports whether an annotation names device files of the node.
func namesFiles(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return slices.Contains(criODevices, domain)
}

// hostFile returns the file of the node in an element of such an annotation: host:container:access.
func hostFile(device string) string {
	host, _, _ := strings.Cut(device, ":")
	return host
}

// fileOwners finds out whose devices files are, for one container. It reads the numbers of a
// vendor's own device files once.
type fileOwners struct {
	guard   *Guard
	numbers map[*vendor][]DeviceNumber
}

// vendorOf returns the vendor one of whose devices the file may be, or "". What is not plainly
// another device counts as one: a file has many names, and what the file is counts. So does each
// file in a place where pods can replace it after it was read, of which nothing is read: it may be
// on a file system that does not answer.
func (o *fileOwners) vendorOf(file string) string {
	vendors, clean := o.guard.vendors, filepath.Clean(file)
	for _, v := range vendors {
		if v.isDevice(clean) {
			return v.name
		}
	}
	// With ".." the path depends on symbolic links, which pods can make.
	if len(vendors) > 0 && (!isRootsAlone(clean) || slices.Contains(strings.Split(file, "/"), "..")) {
		return vendors[0].name
	}
	if len(vendors) == 0 || slices.Contains(plainDevices, clean) {
		return ""
	}
	number, err := o.guard.firewall.options.Files.Number(clean)
	for _, v := range vendors {
		if err != nil || v.unlisted || slices.ContainsFunc(o.numbersOf(v.vendor), number.isSameDriver) {
			return v.name
		}
	}
	return ""
}

// isRootsAlone reports whether only root can write to the directory of a path: /dev, without its
// file systems for all users. /var/lib/kubelet has volumes, /proc the roots of processes.
func isRootsAlone(clean string) bool {
	rest, below := strings.CutPrefix(clean, "/dev/")
	first, _, _ := strings.Cut(rest, "/")
	return below && first != "shm" && first != "mqueue" && first != "fd" && first != "pts"
}

// isDevice reports whether the path is one of the vendor's device files.
func (v *vendor) isDevice(file string) bool {
	return slices.ContainsFunc(v.devices, func(pattern string) bool {
		matched, err := filepath.Match(pattern, file)
		return err == nil && matched
	})
}

// numbersOf returns the numbers of the vendor's device files on the node.
func (o *fileOwners) numbersOf(v *vendor) []DeviceNumber {
	if numbers, known := o.numbers[v]; known {
		return numbers
	}
	var numbers []DeviceNumber
	files := o.guard.firewall.options.Files
	for _, pattern := range v.devices {
		for _, file := range files.Glob(pattern) {
			if number, err := files.Number(file); err == nil {
				numbers = append(numbers, number)
			}
		}
	}
	o.numbers[v] = numbers
	return numbers
}

// isSameDriver reports whether both files are of the same driver.
func (n DeviceNumber) isSameDriver(other DeviceNumber) bool {
	return n.Block == other.Block && n.Major == other.Major && (n.Major != miscMajor || n.Minor == other.Minor)
}
