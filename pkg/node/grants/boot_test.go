// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// mustBoot returns the boot as a process is told it that uses the folder.
func mustBoot(t *testing.T, folder string) string {
	t.Helper()
	boot, err := Boot(folder)
	if err != nil || boot == "" {
		t.Fatalf("boot %q, %v", boot, err)
	}
	return boot
}

func TestAllProcessesOfABootAreToldTheSame(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run", "kubedevice") // not there yet
	boots := make([]string, 8)
	var group sync.WaitGroup
	for i := range boots {
		group.Go(func() { boots[i] = mustBoot(t, folder) })
	}
	group.Wait()
	for _, boot := range boots {
		if boot != boots[0] {
			t.Errorf("processes that start at once are told %q", boots)
		}
	}
	if later := mustBoot(t, folder); later != boots[0] {
		t.Errorf("told %q, and %q later", boots[0], later)
	}
	if left, err := filepath.Glob(filepath.Join(folder, "*")); err != nil || !cmp.Equal(left, []string{filepath.Join(folder, "boot")}) {
		t.Errorf("in the folder: %v, %v", left, err)
	}
}

func TestABootIsAnotherWhenWhatWasInMemoryIsGone(t *testing.T) {
	folder := t.TempDir()
	before := mustBoot(t, folder)
	if err := os.Remove(filepath.Join(folder, "boot")); err != nil {
		t.Fatal(err)
	}
	if after := mustBoot(t, folder); after == before {
		t.Errorf("still %q", after)
	}
}

func TestMachinesAreNotInTheSameBoot(t *testing.T) {
	if a, b := mustBoot(t, t.TempDir()), mustBoot(t, t.TempDir()); a == b {
		t.Errorf("both are in %q", a)
	}
}

func TestABootThatCannotBeToldSaysWhichFolderFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if boot, err := Boot(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("boot %q, %v", boot, err)
	}
}

func TestAnAnswerIsGivenAnewAfterABootAndThenKept(t *testing.T) {
	w, r := granted(t)
	other := func(r *Record) (string, bool) {
		answer, kept := r.Kept("a", "side", nic)
		return string(answer), kept
	}
	if _, err := r.Keep(t.Context(), "a", "side", nic, []byte("other")); err != nil {
		t.Fatal(err)
	}
	for _, boot := range []string{"first boot", "second boot", "third boot"} {
		w.boot = boot
		for _, process := range []string{"one", "two"} {
			r = restart(t, w, r)
			if err := r.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			if answer, kept := r.Kept("a", "main", nic); kept != (process == "two") {
				t.Errorf("%s, process %s: kept %q, %v", boot, process, answer, kept)
			}
			if kept, err := keep(r, boot+", "+process); kept != boot+", one" || err != nil {
				t.Errorf("%s, process %s: kept %q, %v; want the first answer of the boot", boot, process, kept, err)
			}
			if answer, kept := other(r); kept != (boot == "first boot") {
				t.Errorf("%s, process %s: another container's answer of the first boot: %q, %v", boot, process, answer, kept)
			}
		}
	}
}

func TestNoAnswerOfAnotherProcessCountsWhereTheBootIsNotKnown(t *testing.T) {
	w, r := granted(t)
	w.boot = ""
	for _, process := range []string{"one", "two"} {
		r = restart(t, w, r)
		for range 2 {
			if kept, err := keep(r, process); kept != process || err != nil {
				t.Errorf("process %s: kept %q, %v", process, kept, err)
			}
		}
	}
}

func TestAnswersOfAReleaseThatKnewNoBootsDoNotCount(t *testing.T) {
	w, r := granted(t)
	if _, err := keep(r, "answer"); err != nil {
		t.Fatal(err)
	}
	list, err := Read(r.path)
	if err != nil {
		t.Fatal(err)
	}
	list[0].Boot = "" // as that release writes it
	if err := write(r.path, list); err != nil {
		t.Fatal(err)
	}
	r = restart(t, w, r)
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if answer, kept := r.Kept("a", "main", nic); kept {
		t.Errorf("kept %q", answer)
	}
	if kept, err := keep(r, "new"); kept != "new" || err != nil {
		t.Errorf("kept %q, %v", kept, err)
	}
}
