// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"path/filepath"
	"slices"
	"strings"
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
	// Exists reports whether there is a file at the path.
	Exists(path string) bool
}

// deviceFiles returns the device files of the node that an annotation names.
func deviceFiles(key, value string) []string {
	domain, _, _ := strings.Cut(key, "/")
	if !slices.Contains(criODevices, domain) {
		return nil
	}
	var files []string
	for _, device := range list(value) {
		host, _, _ := strings.Cut(device, ":")
		files = append(files, host)
	}
	return files
}

// vendorOf returns the vendor one of whose devices the file may be, or "". What is not plainly
// another device counts as one: a file has many names, and what the file is counts. So does each
// file in a place where pods can replace it after it was read.
func (g *Guard) vendorOf(file string) string {
	if len(g.vendors) == 0 || slices.Contains(plainDevices, file) {
		return ""
	}
	clean := filepath.Clean(file)
	number, err := g.firewall.options.Files.Number(file)
	for _, v := range g.vendors {
		if v.isDevice(clean) {
			return v.name
		}
	}
	for _, v := range g.vendors {
		if err != nil || !isRootsAlone(clean) || v.unlisted || v.hasNumber(g.firewall.options.Files, number) {
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

// hasNumber reports whether one of the vendor's device files on the node is of the same driver.
func (v *vendor) hasNumber(files DeviceFiles, number DeviceNumber) bool {
	for _, pattern := range v.devices {
		for _, file := range files.Glob(pattern) {
			own, err := files.Number(file)
			if err == nil && own.Block == number.Block && own.Major == number.Major &&
				(own.Major != miscMajor || own.Minor == number.Minor) {
				return true
			}
		}
	}
	return false
}
