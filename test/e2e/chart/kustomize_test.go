// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

// What deploy/kustomize installs works like what Helm installs, and goes as completely. The
// commands are those of docs/deploy/chart.md.
func TestKustomizeInstallsAndLeavesNothing(t *testing.T) {
	clustertest.OnlyInFull(t, "hack/chart holds it equal to what Helm installs")
	s := beginWithoutNamespace(t)
	overlay := s.overlay()

	s.kubectl("apply", "--filename="+filepath.Join(root, "deploy", "second-scheduler", "namespace.yaml"))
	keys := filepath.Join(s.TempDir(), "seal-keys")
	s.must(exec.CommandContext(s.ctx, kubecri.Path, "seal-keys", "create", keys).Run())
	printed, err := exec.CommandContext(s.ctx, kubecri.Path, "seal-keys", "list", keys, "-o", "yaml", "--namespace",
		system).Output()
	s.must(err)
	file := filepath.Join(s.TempDir(), "keys.yaml")
	s.must(os.WriteFile(file, printed, 0o600))
	s.kubectl("apply", "--filename="+file)
	s.kubectl("apply", "--kustomize="+overlay)
	s.label(`"true"`)
	s.awaitPolicy()
	pair := s.run(s.gpuPod("pair", 2))
	s.checkPair(pair)
	s.kubectl("delete", "pod", "--namespace="+s.namespace, pair.Name)
	s.label("null")
	s.awaitEnrolled(0)
	s.kubectl("delete", "--kustomize="+overlay)
	s.checkBystander()
	s.checkKubelets()
	s.checkNothingIsLeft()
}

// overlay writes a kustomization of this cluster's own: its simulated GPUs, and where its nodes
// have their things. It returns its directory.
func (s *story) overlay() string {
	s.Helper()
	overlay := s.TempDir()
	base, err := filepath.Rel(overlay, filepath.Join(root, "deploy", "kustomize"))
	s.must(err)
	configuration, err := os.ReadFile(filepath.Join(root, "deploy", "kustomize", "kubecri.yaml"))
	s.must(err)
	own := strings.NewReplacer("/etc/kubernetes/kubelet.conf", kubeconfig).Replace(string(configuration))
	s.must(os.WriteFile(filepath.Join(overlay, "kubecri.yaml"), []byte(own), 0o644))
	s.must(os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), fmt.Appendf(nil, `
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%q]
configMapGenerator:
- name: kubedevice-node
  namespace: kubedevice-system
  behavior: replace
  files: [kubecri.yaml]
patches:
- target: {kind: Deployment, name: kubedevice-scheduler}
  patch: |-
    - {op: remove, path: /spec/template/spec/affinity}
- target: {kind: DaemonSet, name: kubedevice-node-devices}
  patch: |-
    - {op: test, path: /spec/template/spec/containers/0/args/7, value: --plugin=nvidiagpu}
    - {op: replace, path: /spec/template/spec/containers/0/args/7, value: --plugin=simgpu}
    - {op: add, path: /spec/template/spec/containers/0/env/-, value: {name: %s, value: %s}}
`, base, cluster.InventoryVariable, inventory), 0o644))
	return overlay
}
