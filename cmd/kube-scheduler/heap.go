// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/trim"
)

// A scheduler has a small heap and allocates much: 400 KiB for each pod that it places on 100
// nodes. Go collects garbage when the heap has doubled, there after two dozen pods, and tracing the
// heap that often is a sixth of a scheduler's CPU. With the reserve Go collects after 250 pods:
// heapReserve counts as live memory and is never touched, so it takes only address space. A large
// heap, which is collected seldom anyway, grows hardly more than it would without it.

// heapReserve is kept for as long as the process runs.
var heapReserve []byte

// reserveLimit is the most that is reserved, in bytes, and reservePart the part of the memory that
// the process may use.
const (
	reserveLimit = 96 << 20
	reservePart  = 8
)

// trimDelay is how long after its beginning the scheduler's start is over: plugins are loaded, and
// nodes and pods are listed.
const trimDelay = 30 * time.Second

// trimAfterStart gives back the memory that only the start needs.
func trimAfterStart() {
	time.AfterFunc(trimDelay, func() {
		if err := trim.ReduceRSS(); err != nil {
			klog.ErrorS(err, "Cannot give back the memory that the start needed")
		}
	})
}

// reserveHeap makes the reserve.
func reserveHeap() {
	memory := memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)
	heapReserve = make([]byte, reserveSize(os.LookupEnv, memory))
	if len(heapReserve) == 0 {
		return
	}
	// Go clears what it used before by writing to it.
	if err := unix.Madvise(heapReserve, unix.MADV_DONTNEED); err != nil {
		klog.ErrorS(err, "The reserve for the heap may take memory", logkey.Bytes, len(heapReserve))
	}
}

// reserveSize returns how many bytes to reserve: none when the environment has a setting of the
// collector, which then is the user's, or when it is not known how much memory there is.
func reserveSize(environment func(name string) (string, bool), memory memlimit.Provider) uint64 {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if _, set := environment(name); set {
			return 0
		}
	}
	limit, err := memory()
	if err != nil {
		return 0
	}
	return min(reserveLimit, limit/reservePart)
}
