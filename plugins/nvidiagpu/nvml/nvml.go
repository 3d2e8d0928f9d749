// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nvml asks NVIDIA's management library for the GPUs of this machine and how they are
// joined.
//
// It binds the few functions that are needed itself, by dlsym. The usual binding,
// github.com/NVIDIA/go-nvml, cannot be part of a plugin: it leaves all of NVML's functions
// undefined until it opens the library, and package plugin, which binds everything at once
// (RTLD_NOW), then refuses the file: "undefined symbol: nvmlVgpuTypeGetCapabilities". The tests
// build a fake of the library against go-nvml's header, which holds this binding to NVIDIA's
// own declarations.
package nvml

// // A plugin's symbols are global in the host: hidden ones cannot clash.
// #cgo CFLAGS: -fvisibility=hidden
// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "library.h"
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/mig"
)

// DefaultLibrary is NVML as the driver installs it, where the dynamic linker finds it.
const DefaultLibrary = "libnvidia-ml.so.1"

// Library is an NVML that was opened and initialised. NVML itself is safe for concurrent use, and
// so is this, except that nothing may be called after Close.
type Library struct {
	functions C.struct_library

	mu       sync.Mutex
	profiles map[C.nvml_device][]mig.Profile // of GPUs that were asked
}

// Device is one GPU. It is valid until its library is closed.
type Device struct {
	library *Library
	handle  C.nvml_device
}

// Ancestor is the innermost part of the machine that joins two GPUs.
type Ancestor int

// The ancestors, from the closest to the farthest. Values in between may be added by NVIDIA.
const (
	Board           Ancestor = 0  // two GPUs of one board
	OneSwitch       Ancestor = 10 // one PCIe switch
	SeveralSwitches Ancestor = 20 // several PCIe switches, no host bridge
	HostBridge      Ancestor = 30 // one host bridge
	Socket          Ancestor = 40 // one NUMA node
	System          Ancestor = 50 // only the links between sockets
)

const (
	nvlinkCapability = 2  // NVML_P2P_CAPS_INDEX_NVLINK
	p2pOK            = 0  // NVML_P2P_STATUS_OK
	uuidLength       = 96 // NVML_DEVICE_UUID_V2_BUFFER_SIZE
)

// Error is an error of NVML.
type Error struct {
	// Call is what failed, in words.
	Call string
	// Code is NVML's.
	Code int
	text string
}

func (e *Error) Error() string { return fmt.Sprintf("%s: NVML: %s", e.Call, e.text) }

// The codes that callers tell apart.
const (
	NotSupported     = 3
	timeout          = 10
	FunctionNotFound = 13
)

// Open opens and initialises the NVML at path, which is a file or a name for the dynamic linker.
func Open(path string) (*Library, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	l := &Library{profiles: map[C.nvml_device][]mig.Profile{}}
	if problem := C.library_open(&l.functions, name); problem != nil {
		defer C.free(unsafe.Pointer(problem))
		return nil, errors.New(C.GoString(problem))
	}
	if err := l.check("initialise", C.library_init(&l.functions)); err != nil {
		C.library_close(&l.functions)
		return nil, err
	}
	return l, nil
}

// Close shuts NVML down.
func (l *Library) Close() error {
	err := l.check("shut down", C.library_shutdown(&l.functions))
	C.library_close(&l.functions)
	return err
}

// Count returns the number of GPUs. They are numbered in the order of their PCI addresses.
func (l *Library) Count() (int, error) {
	var count C.uint
	err := l.check("count GPUs", C.library_count(&l.functions, &count))
	return int(count), err
}

// Device returns the GPU of that number.
func (l *Library) Device(index int) (Device, error) {
	d := Device{library: l}
	err := l.check(fmt.Sprintf("find GPU number %d", index), C.library_by_index(&l.functions, C.uint(index), &d.handle))
	return d, err
}

// UUID returns the name that the GPU has everywhere: GPU-….
func (d Device) UUID() (string, error) {
	var uuid [uuidLength]C.char
	code := C.library_uuid(&d.library.functions, d.handle, &uuid[0], uuidLength)
	if err := d.library.check("query a GPU for its UUID", code); err != nil {
		return "", err
	}
	return C.GoString(&uuid[0]), nil
}

// Memory returns the GPU's memory in bytes, without what the driver reserves for itself: what all
// programs together can use. A driver before 510 does not report what it reserves.
func (d Device) Memory() (int64, error) {
	var bytes C.ulonglong
	err := d.library.check("read the memory of a GPU", C.library_usable_memory(&d.library.functions, d.handle, &bytes))
	return int64(bytes), err
}

// CommonAncestor returns what joins two GPUs over PCIe.
func CommonAncestor(a, b Device) (Ancestor, error) {
	var level C.int
	err := a.library.check("query how two GPUs are joined",
		C.library_common_ancestor(&a.library.functions, a.handle, b.handle, &level))
	return Ancestor(level), err
}

// NVLinked reports whether NVLink joins two GPUs, directly or over a switch. Where the driver or
// the GPUs don't know NVLink, it does not.
func NVLinked(a, b Device) (bool, error) {
	var status C.int
	err := a.library.check("query whether NVLink joins two GPUs",
		C.library_p2p_status(&a.library.functions, a.handle, b.handle, nvlinkCapability, &status))
	var nvmlErr *Error
	if errors.As(err, &nvmlErr) && (nvmlErr.Code == NotSupported || nvmlErr.Code == FunctionNotFound) {
		return false, nil
	}
	return err == nil && status == p2pOK, err
}

func (l *Library) check(call string, code C.nvml_return) error {
	if code == C.NVML_OK {
		return nil
	}
	return &Error{Call: call, Code: int(code), text: C.GoString(C.library_error_string(&l.functions, code))}
}
