// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
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
		"nobody knows":             {none, unknown, 0},
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
		os.Unsetenv(name)
	}
	debug.FreeOSMemory()
	before := resident(t)
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
	if took := resident(t) - before; took > reserved/4 {
		t.Errorf("the reserve took %d bytes of memory, want hardly any", took)
	}
}

// resident returns how many bytes of the process are in memory.
func resident(t *testing.T) int {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}
