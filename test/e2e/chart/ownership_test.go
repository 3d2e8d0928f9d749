// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"path/filepath"
	"testing"

	"github.com/kubedevice/kubedevice/test/clustertest"
)

// Manifests were applied by hand before the chart: docs/deploy/chart.md says how Helm takes them
// over.
func TestHelmTakesOverManifestsThatWereApplied(t *testing.T) {
	clustertest.OnlyInFull(t, "another story installs where nothing was applied")
	s := begin(t)
	manifests := []string{
		"--filename=" + filepath.Join(root, "deploy", "rbac"),
		"--filename=" + filepath.Join(root, "deploy", "policies"),
	}
	s.kubectl(append([]string{"apply"}, manifests...)...)
	s.refuse("invalid ownership metadata", s.install(values())...)
	s.helm(append(s.install(values()), "--take-ownership", "--force-conflicts")...)
	s.label(`"true"`)
	s.awaitPolicy()
	pair := s.run(s.gpuPod("pair", 2))
	s.checkPair(pair)
	s.kubectl("delete", "pod", "--namespace="+s.namespace, pair.Name)
	s.helm("uninstall", "kubedevice", "--wait", "--timeout=2m")
	s.label("null")
	s.kubectl(append([]string{"delete", "--ignore-not-found"}, manifests...)...)
	s.checkBystander()
	s.checkKubelets()
	s.checkNothingIsLeft()
}
