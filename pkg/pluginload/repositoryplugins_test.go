// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLoadsTheProjectsPlugins builds them like the host: in the same module, with the same flags.
func TestLoadsTheProjectsPlugins(t *testing.T) {
	dir := t.TempDir()
	names := []string{"nvidiagpu", "simgpu"}
	for _, name := range names {
		for _, side := range []string{"scheduler", "device"} {
			args := []string{"build", "-trimpath", "-buildmode=plugin", "-o", filepath.Join(dir, side, name+".so")}
			if raceEnabled() {
				args = append(args, "-race")
			}
			goBuild(t, "../../plugins", append(args, "./"+filepath.Join(name, side)))
		}
	}
	schedulers, rejected := LoadDir(testContext(t), filepath.Join(dir, "scheduler"), Schedulers())
	for _, err := range rejected {
		t.Error(err)
	}
	devices, rejected := LoadDir(testContext(t), filepath.Join(dir, "device"), Devices())
	for _, err := range rejected {
		t.Error(err)
	}
	var loaded []string
	for _, s := range schedulers {
		loaded = append(loaded, s.Name)
	}
	for _, d := range devices {
		loaded = append(loaded, d.Name)
	}
	if diff := cmp.Diff(append(names, names...), loaded); diff != "" {
		t.Errorf("loaded (-want +got):\n%s", diff)
	}
}
