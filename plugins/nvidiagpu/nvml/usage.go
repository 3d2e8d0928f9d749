// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nvml

// #include "library.h"
import "C"

import "errors"

// insufficientSize is the code of a list that is too short, and unknownMemory NVML's value for
// memory of a process that the driver does not know: NVML_VALUE_NOT_AVAILABLE.
const (
	insufficientSize = 7
	unknownMemory    = ^C.ulonglong(0)
)

// Lists of processes grow from firstRoom entries. What is longer than maxRoom is an error.
const (
	firstRoom = 64
	maxRoom   = 1 << 16
)

// Process is a process that uses a GPU or an instance.
type Process struct {
	// PID is that of the host, if the caller is in the host's PID namespace: else the driver hides
	// the process.
	PID uint32
	// Memory is what it uses, in bytes. It is 0 where MemoryKnown is false.
	Memory      uint64
	MemoryKnown bool
}

// Sample says how busy one process kept the GPU during a short period.
type Sample struct {
	PID uint32
	// Timestamp is when that was, in microseconds, by a clock of the driver's.
	Timestamp uint64
	// Multiprocessors is in percent.
	Multiprocessors uint32
}

// MemoryUsage returns how many bytes all programs together can use of the memory of the GPU or
// instance, as Memory does, and how many they use. A driver before 510 counts what it reserves as
// used.
func (d Device) MemoryUsage() (usable, used int64, err error) {
	var total, now C.ulonglong
	err = d.library.check("read the memory of a GPU",
		C.library_used_memory(&d.library.functions, d.handle, &total, &now))
	return int64(total), int64(now), err
}

// Processes returns the processes that have a context for computing or for graphics on the GPU or
// instance, each once. Under MPS, they are its clients and its server.
//
// It calls the second version of NVML's functions. The third has the same layout, except in some
// drivers of release 535.
func (d Device) Processes() ([]Process, error) {
	compute, err := listed("list the processes of a GPU", d.library,
		func(count *C.uint, list *C.struct_nvml_process) C.nvml_return {
			return C.library_compute_processes(&d.library.functions, d.handle, count, list)
		})
	if err != nil {
		return nil, err
	}
	graphics, err := listed("list the graphics processes of a GPU", d.library,
		func(count *C.uint, list *C.struct_nvml_process) C.nvml_return {
			return C.library_graphics_processes(&d.library.functions, d.handle, count, list)
		})
	if err != nil && !IsMissing(err) { // as of instances, which have no graphics
		return nil, err
	}
	processes := make([]Process, 0, len(compute)+len(graphics))
	index := make(map[uint32]int, len(compute))
	for _, p := range append(compute, graphics...) {
		process := Process{PID: uint32(p.pid)}
		if p.memory != unknownMemory {
			process.Memory, process.MemoryKnown = uint64(p.memory), true
		}
		i, twice := index[process.PID]
		if !twice {
			index[process.PID] = len(processes)
			processes = append(processes, process)
		} else if process.Memory > processes[i].Memory {
			processes[i] = process // NVML has all of a process's memory in both lists
		}
	}
	return processes, nil
}

// Samples returns what the driver has sampled since a timestamp, or all that it still has for 0. It
// has no samples of processes that did not use the GPU, nor of clients of MPS, whose use is the
// server's. Partitioned GPUs and instances have none.
func (d Device) Samples(since uint64) ([]Sample, error) {
	list, err := listed("sample the processes of a GPU", d.library,
		func(count *C.uint, list *C.struct_nvml_process_sample) C.nvml_return {
			return C.library_process_utilization(&d.library.functions, d.handle, count, list, C.ulonglong(since))
		})
	var nvmlErr *Error
	if errors.As(err, &nvmlErr) && nvmlErr.Code == notFound {
		return nil, nil
	}
	samples := make([]Sample, 0, len(list))
	for _, s := range list {
		samples = append(samples, Sample{
			PID: uint32(s.pid), Timestamp: uint64(s.timestamp), Multiprocessors: uint32(s.multiprocessors),
		})
	}
	return samples, err
}

// Utilization returns how much of the last second, or less, programs were running on the GPU, in
// percent. Partitioned GPUs and instances do not know.
func (d Device) Utilization() (percent uint32, err error) {
	var rates C.struct_nvml_utilization
	err = d.library.check("read how busy a GPU is", C.library_utilization(&d.library.functions, d.handle, &rates))
	return uint32(rates.gpu), err
}

// listed returns a list of NVML, which may grow between two calls.
func listed[T any](call string, library *Library, read func(count *C.uint, list *T) C.nvml_return) ([]T, error) {
	for room := firstRoom; ; room *= 2 {
		list := make([]T, room)
		count := C.uint(room)
		code := read(&count, &list[0])
		if code == insufficientSize && room < maxRoom {
			room = max(room, min(int(count), maxRoom/2))
			continue
		}
		if err := library.check(call, code); err != nil {
			return nil, err
		}
		return list[:min(int(count), room)], nil
	}
}
