// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSettingsOfSharesThatCannotBeAreRefused(t *testing.T) {
	for args, want := range map[string]string{
		"--on-share-exceeded=End --device-usage-interval=0s":    "without readings no container is known",
		"--share-exceeded-grace-period=-1s":                     "want 0s or more",
		"--on-share-exceeded=Stop":                              `"Stop" is none of Ignore, End and Evict`,
		"--context-memory=H100":                                 "with a quantity, such as H100=518Mi",
		"--on-share-exceeded=Ignore --device-usage-interval=0s": "",
		"--on-share-exceeded=End --share-exceeded-grace-period=0s --context-memory=H100=518Mi,*=0": "",
	} {
		_, err := parse(strings.Fields(args + " --hostname-override=node-1")...)
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

func TestKubecriDoesNotStartWithoutTheLibraryOfItsConfiguration(t *testing.T) {
	library := filepath.Join(t.TempDir(), "libvgpu.so")
	_, err := parse("--hostname-override=node-1", "--share-library="+library)
	want := "--share-library: lstat " + library + ": no such file or directory: put the library there, or take it " +
		"out of kubecri's configuration"
	if err == nil || err.Error() != want {
		t.Errorf("without: %v, want %s", err, want)
	}
	if err := os.WriteFile(library, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := parse("--hostname-override=node-1", "--share-library="+library); err != nil {
		t.Errorf("with it: %v", err)
	}
}
