// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestHostProgramLoadsPlugins uses a real program as host: unlike a test's, its build information
// lists its modules, and its child starts through main.
func TestHostProgramLoadsPlugins(t *testing.T) {
	host := filepath.Join(t.TempDir(), "host")
	args := []string{"build", "-trimpath", "-o", host}
	if raceEnabled() {
		args = append(args, "-race")
	}
	goBuild(t, ".", append(args, "./testdata/host"))

	dir := t.TempDir()
	good, old := filepath.Join(dir, "good.so"), filepath.Join(dir, "old.so")
	build(t, good, recipe{source: "device", module: "example.com/good"})
	build(t, old, recipe{source: "device", module: "example.com/old", sdk: "v0.0.9"})

	out, err := exec.CommandContext(t.Context(), host, dir).Output()
	if err != nil {
		t.Fatalf("host: %v", err)
	}
	refused := `plugin "` + old + `": is built with a different version of package ` + sdkModule + `/types: ` +
		`module ` + sdkModule + ` is v0.0.9 in the plugin and v0.1.0 here; rebuild it with this program's versions ` +
		`and flags`
	want := `check: plugin "` + good + `": loads as device plugin "gadget", built from example.com/good with ` +
		`` + hostInfo().GoVersion + " and SDK v0.1.0 <nil>\n" +
		"check:  " + refused + "\n" +
		"loaded: gadget\n" +
		"rejected: " + refused + "\n"
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}
