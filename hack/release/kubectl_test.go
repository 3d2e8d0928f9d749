// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"testing"
)

// The name of the manifest's file is that of the plugin, as it is in krew's index.
func TestKrewTakesTheManifestAndInstallsThePlugin(t *testing.T) {
	r := inputs(t)
	found := written(t, r)
	manifest := filepath.Join(t.TempDir(), "device.yaml")
	writeFile(t, manifest, found["krew-device.yaml"])
	const krew = "sigs.k8s.io/krew/cmd/"
	runProgram(t, buildProgram(t, "../tools", krew+"validate-krew-manifest"), nil, "-manifest", manifest,
		"-skip-install")
	root := t.TempDir()
	runProgram(t, buildProgram(t, "../tools", krew+"krew"),
		[]string{"KREW_ROOT=" + root, "KREW_OS=linux", "KREW_ARCH=amd64"},
		"install", "--manifest="+filepath.Join(r.out, "krew-device.yaml"),
		"--archive="+filepath.Join(r.out, "kubectl-device-linux-amd64.tar.gz"))
	program, err := program()
	must(t, err)
	if readFile(t, filepath.Join(root, "bin", "kubectl-device")) != string(program) {
		t.Error("krew has installed another program than the archive's")
	}
}
