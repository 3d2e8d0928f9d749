// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/component-base/version"
)

func TestHelpHasTheFlagsOfTheCommandAndOptionsThoseOfAll(t *testing.T) {
	f := newFixture()
	for _, line := range []string{"--help", "pods --help", "seal-keys --help", "seal-keys create --help"} {
		stdout, _, status := f.run(t.Context(), line)
		if status != 0 || strings.Contains(stdout, "--chunk-size") ||
			!strings.Contains(stdout, "kubectl device options") {
			t.Errorf("%s: exit status %d:\n%s", line, status, stdout)
		}
		if line == "pods --help" && !strings.Contains(stdout, "--all-namespaces") {
			t.Errorf("its own flags are missing:\n%s", stdout)
		}
	}
	if stdout, _, status := f.run(t.Context(), "options"); status != 0 || !strings.Contains(stdout, "--chunk-size") {
		t.Errorf("options: exit status %d:\n%s", status, stdout)
	}
}

func TestTheVersionIsThatOfTheProgram(t *testing.T) {
	f := newFixture()
	own := version.Get()
	if stdout, _, status := f.run(t.Context(), "version"); status != 0 || !strings.Contains(stdout, own.GitVersion) {
		t.Errorf("exit status %d: %s", status, stdout)
	}
	stdout, _, _ := f.run(t.Context(), "version -o json")
	got := own
	got.GitVersion = ""
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || got != own {
		t.Errorf("%s: %v", stdout, err)
	}
	if _, stderr, status := f.run(t.Context(), "version -o wide"); status != 1 || !strings.Contains(stderr, "wide") {
		t.Errorf("exit status %d: %s", status, stderr)
	}
}
