// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"os"
	"testing"
)

func TestFiguresOfThisProcess(t *testing.T) {
	before, err := MemoryOf(os.Getpid())
	if err != nil || before.Resident <= before.Anonymous || before.Anonymous == 0 {
		t.Fatalf("memory: %+v, %v", before, err)
	}
	const more = 64 << 20
	touched := make([]byte, more)
	for i := 0; i < more; i += os.Getpagesize() {
		touched[i] = 1
	}
	after, err := MemoryOf(os.Getpid())
	if err != nil || after.Anonymous-before.Anonymous < more/2 {
		t.Errorf("%d bytes came to %+v, which was %+v; %v", len(touched), after, before, err)
	}
	if spent, err := CPU(os.Getpid()); err != nil || spent <= 0 {
		t.Errorf("CPU: %v, %v", spent, err)
	}
}

func TestAProcessThatIsNotThereIsAnError(t *testing.T) {
	const none = 1 << 22 // above the kernel's largest
	if _, err := MemoryOf(none); err == nil {
		t.Error("it has memory")
	}
	if _, err := CPU(none); err == nil {
		t.Error("it has had a CPU")
	}
}
