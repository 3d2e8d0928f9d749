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

// mustBoot returns the boot as a process that uses the directory sees it.
func mustBoot(t *testing.T, directory string) string {
	t.Helper()
	boot, err := Boot(directory)
	if err != nil || boot == "" {
		t.Fatalf("boot %q, %v", boot, err)
	}
	return boot
}

func TestAllProcessesOfABootHaveTheSameName(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "run", "kubedevice") // not there yet
	boots := make([]string, 8)
	var group sync.WaitGroup
	for i := range boots {
		group.Go(func() { boots[i] = mustBoot(t, directory) })
	}
	group.Wait()
	for _, boot := range boots {
		if boot != boots[0] {
			t.Errorf("processes that start at once see %q", boots)
		}
	}
	if later := mustBoot(t, directory); later != boots[0] {
		t.Errorf("first %q, later %q", boots[0], later)
	}
	if left, err := filepath.Glob(filepath.Join(directory, "*")); err != nil ||
		!cmp.Equal(left, []string{filepath.Join(directory, "boot")}) {
		t.Errorf("in the directory: %v, %v", left, err)
	}
}

func TestABootIsAnotherWhenWhatWasInMemoryIsGone(t *testing.T) {
	directory := t.TempDir()
	before := mustBoot(t, directory)
	if err := os.Remove(filepath.Join(directory, "boot")); err != nil {
		t.Fatal(err)
	}
	if after := mustBoot(t, directory); after == before {
		t.Errorf("still %q", after)
	}
}

func TestMachinesAreNotInTheSameBoot(t *testing.T) {
	if a, b := mustBoot(t, t.TempDir()), mustBoot(t, t.TempDir()); a == b {
		t.Errorf("both are in %q", a)
	}
}

func TestABootThatCannotBeIdentifiedSaysWhichDirectoryFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if boot, err := Boot(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("boot %q, %v", boot, err)
	}
}

func TestAResponseIsRequestedAgainAfterABootAndThenCached(t *testing.T) {
	f, c := withPodA(t)
	other := func(c *Checkpoint) (string, bool) {
		response, cached := c.Responses().Get("a", "side", nic)
		return string(response), cached
	}
	if _, err := c.Responses().Put("a", "side", nic, []byte("other")); err != nil {
		t.Fatal(err)
	}
	for _, boot := range []string{"first boot", "second boot", "third boot"} {
		f.boot = boot
		for _, process := range []string{"one", "two"} {
			c = reopen(t, f, c)
			if response, cached := c.Responses().Get("a", "main", nic); cached != (process == "two") {
				t.Errorf("%s, process %s: cached %q, %v", boot, process, response, cached)
			}
			if cached, err := put(c, boot+", "+process); cached != boot+", one" || err != nil {
				t.Errorf(
					"%s, process %s: cached %q, %v; want the first response of the boot",
					boot,
					process,
					cached,
					err,
				)
			}
			if response, cached := other(c); cached != (boot == "first boot") {
				t.Errorf(
					"%s, process %s: another container's response of the first boot: %q, %v",
					boot,
					process,
					response,
					cached,
				)
			}
		}
	}
}

func TestNoResponseOfAnotherProcessCountsWhereTheBootIsNotKnown(t *testing.T) {
	f, c := withPodA(t)
	f.boot = ""
	for _, process := range []string{"one", "two"} {
		c = reopen(t, f, c)
		for range 2 {
			if cached, err := put(c, process); cached != process || err != nil {
				t.Errorf("process %s: cached %q, %v", process, cached, err)
			}
		}
	}
}
