// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"golang.org/x/sys/unix"
)

func TestTheReserveFitsTheMemoryThereIs(t *testing.T) {
	none := map[string]string{}
	unknown := func() (uint64, error) { return 0, errors.New("no such file") }
	for name, test := range map[string]struct {
		environment map[string]string
		memory      memlimit.Provider
		want        uint64
	}{
		"a large machine":          {none, memlimit.Limit(64 << 30), 96 << 20},
		"a container with 256 MiB": {none, memlimit.Limit(256 << 20), 32 << 20},
		"an unknown limit":         {none, unknown, 0},
		"GOGC is the user's":       {map[string]string{"GOGC": "100"}, memlimit.Limit(64 << 30), 0},
		"GOMEMLIMIT is the user's": {map[string]string{"GOMEMLIMIT": "1GiB"}, memlimit.Limit(64 << 30), 0},
	} {
		t.Run(name, func(t *testing.T) {
			lookup := func(name string) (string, bool) {
				value, ok := test.environment[name]
				return value, ok
			}
			if got := reserveSize(lookup, test.memory); got != test.want {
				t.Errorf("reserves %d bytes, want %d", got, test.want)
			}
		})
	}
}

func TestTheReserveDelaysTheCollectorAndTakesNoMemory(t *testing.T) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		t.Setenv(name, "") // which brings it back at the end
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	reserveHeap()
	defer func() { heapReserve = nil }()
	reserved := len(heapReserve)
	if reserved == 0 {
		t.Fatal("nothing is reserved")
	}
	debug.FreeOSMemory() // which collects garbage first

	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	if grows := stats.NextGC - stats.HeapAlloc; grows < uint64(reserved) {
		t.Errorf("the heap is collected again when it has grown by %d bytes, want %d or more", grows, reserved)
	}
	if took := resident(t, heapReserve); took > reserved/100 {
		t.Errorf("%d bytes of the reserve are in memory, want hardly any", took)
	}
	for i := 0; i < reserved/2; i += os.Getpagesize() {
		heapReserve[i] = 1
	}
	if took := resident(t, heapReserve); took < reserved/2 {
		t.Errorf("%d bytes of the reserve are in memory after half of it was touched", took)
	}
}

// resident returns how many bytes of a large slice are in memory. What else the process has, such
// as the race detector's own, does not count.
func resident(t *testing.T, bytes []byte) (count int) {
	t.Helper()
	pages := make([]byte, (len(bytes)+os.Getpagesize()-1)/os.Getpagesize())
	_, _, failed := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(bytes))),
		uintptr(len(bytes)), uintptr(unsafe.Pointer(unsafe.SliceData(pages))))
	if failed != 0 {
		t.Fatal(failed)
	}
	for _, page := range pages {
		count += int(page&1) * os.Getpagesize()
	}
	return count
}
