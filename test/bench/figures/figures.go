// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package figures reads what a process costs, from the kernel.
package figures

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// CPU returns the time for which a process has had a CPU: all of its threads, those that have ended
// included.
func CPU(pid int) (time.Duration, error) {
	const schedule = 2 // the clock of all that the process's threads have run, see clock_getcpuclockid(3)
	var spent unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedule), &spent); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(spent.Nano()), nil
}

// Memory is what a process has in memory, in bytes.
type Memory struct {
	Resident int64
	// Anonymous is the part that no file backs. The rest is the program and what it maps, which the
	// kernel has in memory once for all: with huge pages of it, a process that touches one byte has
	// 2 MiB.
	Anonymous int64
}

// MemoryOf returns what a process has in memory now.
func MemoryOf(pid int) (Memory, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return Memory{}, err
	}
	status, err := process.NewStatus()
	if err != nil {
		return Memory{}, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	return Memory{Resident: int64(status.VmRSS), Anonymous: int64(status.RssAnon)}, nil
}
