// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestACheckoutWithoutTheReleaseSaysHowToGetIt(t *testing.T) {
	w := newFixture(t)
	w.source = filepath.Join(w.source, "test")
	made, err := exec.CommandContext(t.Context(), "git", "init", filepath.Dir(w.source)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, made)
	}
	w.step = extras[PreviousRelease]
	w.step.name, w.step.inputs = string(PreviousRelease), nil
	w.recipes = nil
	err = w.bring(t)
	for _, want := range []string{string(PreviousRelease), releaseCommit, "git fetch --unshallow"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want it to contain %q", err, want)
		}
	}
}
