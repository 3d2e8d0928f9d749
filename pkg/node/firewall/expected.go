// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Expected is what the container runtime of a vendor has to add to a container, because the answer
// of a device plugin only names the devices.
type Expected struct {
	// Vendor is the domain of the vendor.
	Vendor string
	// Request is what the vendor's runtime reads, such as NVIDIA_VISIBLE_DEVICES=GPU-8f6d1c3a, or
	// the path of a mount.
	Request string
	// Files are patterns, as of filepath.Match, of the device files by which a container uses the
	// vendor's devices.
	Files []string
	// Setup is a command on the node that makes the vendor's runtime the default one. It is empty
	// where none is known.
	Setup string
}

// Has reports whether a device file or a mount at the path of a container gives it devices of the
// vendor.
func (e Expected) Has(containerPath string) bool {
	clean := path.Clean(containerPath)
	return clean == "/dev" || slices.ContainsFunc(e.Files, func(pattern string) bool {
		matched, err := filepath.Match(pattern, clean)
		return err == nil && matched || path.Dir(pattern) == clean
	})
}

// Runtimes are the container runtimes of vendors: those that are built in, and those of declared
// vendors. They are read only.
type Runtimes struct{ vendors []*vendor }

// NewRuntimes returns the runtimes with those of declared vendors.
func NewRuntimes(declared []Vendor) Runtimes { return Runtimes{withDeclared(declared)} }

// Expected returns what vendors' runtimes have to add to a container that gets this answer of its
// device plugins. A vendor whose device files or CDI devices are in the answer has nothing to add.
func (r Runtimes) Expected(answer *runtimeapi.ContainerConfig) []Expected {
	if len(answer.GetEnvs()) == 0 && len(answer.GetMounts()) == 0 {
		return nil
	}
	env := entries(answer.GetEnvs())
	var all []Expected
	for _, v := range r.vendors {
		request := v.requested(env, answer.GetMounts())
		if request == "" || v.isPassed(answer) {
			continue
		}
		all = append(all, Expected{Vendor: v.name, Request: request, Files: v.devices, Setup: v.setup})
	}
	return all
}

// requested returns what of variables and mounts requests devices from the vendor's runtime, or "".
func (v *vendor) requested(env []string, mounts []*runtimeapi.Mount) string {
	for i := range v.readers {
		r := &v.readers[i]
		if r.extends || r.harmful {
			continue
		}
		for _, t := range r.obeys(env) {
			if !r.isHarmless(t) {
				return t.name + "=" + t.value
			}
		}
	}
	for _, m := range mounts {
		for _, start := range v.mountPaths {
			if strings.HasPrefix(m.GetContainerPath(), start+"/") {
				return m.GetContainerPath()
			}
		}
	}
	return ""
}

// isPassed reports whether an answer has device files or CDI devices of the vendor.
func (v *vendor) isPassed(answer *runtimeapi.ContainerConfig) bool {
	return slices.ContainsFunc(answer.GetDevices(), func(d *runtimeapi.Device) bool {
		return v.isDevice(path.Clean(d.GetHostPath())) || v.isDevice(path.Clean(d.GetContainerPath()))
	}) || slices.ContainsFunc(answer.GetCDIDevices(), func(d *runtimeapi.CDIDevice) bool {
		return hasKind(v.cdiKinds, d.GetName())
	})
}
