// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nvml

// #include "library.h"
import "C"

import "fmt"

const (
	xidEvents           = 8   // nvmlEventTypeXidCriticalError
	recoveryActionField = 230 // NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
)

// RecoveryAction is what the driver needs before a GPU can be used again. Others may be added by
// NVIDIA.
type RecoveryAction uint32

// The actions.
const (
	NoAction      RecoveryAction = 0
	Reset         RecoveryAction = 1 // of the GPU
	Reboot        RecoveryAction = 2 // of the machine
	DrainP2P      RecoveryAction = 3 // end what uses GPUs that are joined to it
	DrainAndReset RecoveryAction = 4 // end what uses it, then reset it
)

// RowRemapFailed reports whether a row of the GPU's memory could not be replaced, so that errors
// there come again. GPUs before Ampere do not know.
func (d Device) RowRemapFailed() (bool, error) {
	var failed C.uint
	err := d.library.check("query a GPU for its remapped rows",
		C.library_remap_failed(&d.library.functions, d.handle, &failed))
	return failed != 0, err
}

// PagesPending reports whether pages of the GPU's memory with errors are used until the next
// reboot. GPUs since Ampere do not know.
func (d Device) PagesPending() (bool, error) {
	var pending C.int
	err := d.library.check("query a GPU for its retired pages",
		C.library_pages_pending(&d.library.functions, d.handle, &pending))
	return pending != 0, err
}

// RecoveryAction returns what the driver needs. Old drivers do not know.
func (d Device) RecoveryAction() (RecoveryAction, error) {
	var action C.uint
	err := d.library.check("query what a GPU needs to recover",
		C.library_field(&d.library.functions, d.handle, recoveryActionField, &action))
	return RecoveryAction(action), err
}

// Events are the critical errors (XIDs) of some GPUs. They are for one goroutine.
type Events struct {
	library *Library
	set     C.nvml_event_set
}

// XID is a critical error of a GPU.
type XID struct {
	// Device is as it was given to Watch.
	Device Device
	// Number is NVIDIA's, 999 for one that the driver has no number for.
	Number uint64
	// GPUInstance and ComputeInstance are the numbers of the instance that has the error, each
	// NoInstance where the driver knows none.
	GPUInstance, ComputeInstance uint32
}

// NewEvents returns the events of no GPU yet. Old drivers have none.
func (l *Library) NewEvents() (*Events, error) {
	e := &Events{library: l}
	if err := l.check("make a set of events", C.library_event_set(&l.functions, &e.set)); err != nil {
		return nil, err
	}
	return e, nil
}

// Watch adds the events of a GPU from now on.
func (e *Events) Watch(d Device) error {
	return e.library.check("watch the events of a GPU",
		C.library_event_register(&e.library.functions, d.handle, xidEvents, e.set))
}

// Next returns the next error that has come, without waiting for one. On Linux the driver keeps all
// that come until they are read.
func (e *Events) Next() (xid XID, ok bool, err error) {
	for {
		var event C.struct_nvml_event
		code := C.library_event_wait(&e.library.functions, e.set, &event, 0)
		if code == timeout {
			return XID{}, false, nil
		}
		if err := e.library.check("read the events of GPUs", code); err != nil {
			return XID{}, false, err
		}
		if event._type == xidEvents {
			return XID{
				Device: Device{e.library, event.device}, Number: uint64(event.data),
				GPUInstance: uint32(event.gpu_instance), ComputeInstance: uint32(event.compute_instance),
			}, true, nil
		}
	}
}

// Close ends the events.
func (e *Events) Close() error {
	return e.library.check("free a set of events", C.library_event_free(&e.library.functions, e.set))
}

// String says what is to be done.
func (a RecoveryAction) String() string {
	switch a {
	case NoAction:
		return "nothing"
	case Reset:
		return "reset the GPU"
	case Reboot:
		return "reboot the machine"
	case DrainP2P:
		return "end what uses the GPU and those that are joined to it"
	case DrainAndReset:
		return "end what uses the GPU, then reset it"
	}
	return fmt.Sprintf("recovery action %d of NVML", uint32(a))
}
