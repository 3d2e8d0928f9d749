// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nvml

// #include "library.h"
import "C"

import "fmt"

// Description is what NVML says of a GPU and its driver. What it does not know is empty.
type Description struct {
	// Name is the product's, such as NVIDIA H100 80GB HBM3.
	Name string
	// Brand and Architecture are as NVIDIA's own tools call them: Nvidia, Hopper.
	Brand, Architecture string
	// ComputeCapability is that of CUDA, such as 9.0.
	ComputeCapability string
	// Driver is the driver's version, such as 580.159.04, and CUDA the newest one that it
	// supports, such as 13.0.
	Driver, CUDA string
	// Address is the PCI address, as Linux has it: 0000:17:00.0.
	Address string
}

// The buffers that NVML's header recommends for names and versions.
const (
	nameLength    = 96
	versionLength = 80
)

// brands and architectures have NVML's numbers, and the names of github.com/NVIDIA/go-nvlib, which
// NVIDIA's own device plugin and driver publish.
var (
	brands = map[C.int]string{
		1: "Quadro", 2: "Tesla", 3: "NVS", 4: "Grid", 5: "GeForce", 6: "Titan", 7: "NvidiaVApps", 8: "NvidiaVPC",
		9: "NvidiaVCS", 10: "NvidiaVWS", 11: "NvidiaCloudGaming", 12: "QuadroRTX", 13: "NvidiaRTX", 14: "Nvidia",
		15: "GeForceRTX", 16: "TitanRTX",
	}
	architectures = map[C.uint]string{
		2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada Lovelace", 9: "Hopper",
		10: "Blackwell", 13: "Rubin",
	}
)

// Describe returns what NVML says of the GPU. What the driver or the GPU does not know is left out.
// The error is the first other one. The rest is there with it, too.
func (d Device) Describe() (about Description, err error) {
	known := func(call string, code C.nvml_return) bool {
		problem := d.library.check(call, code)
		if problem != nil && !IsMissing(problem) && err == nil {
			err = problem
		}
		return problem == nil
	}
	var name [nameLength]C.char
	if known("query a GPU for its name", C.library_name(&d.library.functions, d.handle, &name[0], nameLength)) {
		about.Name = C.GoString(&name[0])
	}
	var brand C.int
	if known("query a GPU for its brand", C.library_brand(&d.library.functions, d.handle, &brand)) {
		about.Brand = brands[brand]
	}
	var architecture C.uint
	if known("query a GPU for its architecture",
		C.library_architecture(&d.library.functions, d.handle, &architecture)) {
		about.Architecture = architectures[architecture]
	}
	var major, minor C.int
	if known("query a GPU for its compute capability",
		C.library_compute_capability(&d.library.functions, d.handle, &major, &minor)) {
		about.ComputeCapability = fmt.Sprintf("%d.%d", major, minor)
	}
	var version [versionLength]C.char
	if known("query the driver for its version",
		C.library_driver_version(&d.library.functions, &version[0], versionLength)) {
		about.Driver = C.GoString(&version[0])
	}
	var cuda C.int
	if known("query the driver for the version of CUDA", C.library_cuda_version(&d.library.functions, &cuda)) {
		about.CUDA = fmt.Sprintf("%d.%d", cuda/1000, cuda%1000/10)
	}
	var pci C.struct_nvml_pci
	if known("query a GPU for its PCI address", C.library_pci(&d.library.functions, d.handle, &pci)) {
		about.Address = fmt.Sprintf("%04x:%02x:%02x.0", pci.domain, pci.bus, pci.device)
	}
	return about, err
}
