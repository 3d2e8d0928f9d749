// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/enrolments"
)

// The DaemonSet enrols nodes on which pods run, whose kubelets run as kubeadm sets them up. With
// drain, Helm has the pods evicted that are in the way back. It is the last test: the kubelets are
// those of a fake systemd from now on.
func TestTheDaemonSetPutsTheProxyOnNodesAndTakesItBack(t *testing.T) {
	nodes, groups := kubeadmNodes(t)
	s := begin(t)
	files := s.filesOf(nodes)
	values := map[string]any{
		"mode": "cri", "nodeGroups": groups, "scheduler": map[string]any{"placement": "any"},
		"node": map[string]any{
			"kubeconfig": kubeconfig, "nriSocket": "/run/nri/nri.sock",
			"enrolArgs": []any{"--systemd-dir=$(UNITS)"},
		},
	}
	s.helm(s.install(values)...)
	s.label(`"true"`)
	s.awaitPolicy()
	s.awaitEnrolled(len(nodes))
	for _, node := range shared.Nodes {
		s.checkPair(s.run(clustertest.On(node.Name, s.gpuPod("pair-"+node.Name, 2))))
	}
	s.checkBystander()
	s.refuse("pair-node-1 (on node-1)", "uninstall", "kubedevice", "--timeout=1m")
	s.helm("rollback", "kubedevice", "1") // Helm has the release as uninstalling
	s.helm("upgrade", "kubedevice", root+"/deploy/chart", "--reuse-values", "--set=uninstall.drain=true")
	s.helm("uninstall", "kubedevice", "--wait", "--timeout=3m")
	s.label("null")
	for _, node := range shared.Nodes {
		s.checkEvicted("pair-" + node.Name)
	}
	s.checkBystander()
	if diff := cmp.Diff(files, s.filesOf(nodes)); diff != "" {
		t.Errorf("files of the kubelets (-before +after):\n%s", diff)
	}
	s.checkNothingIsLeft()
}

// kubeadmNodes has the kubelets run as kubeadm sets them up, and returns the nodes, and a group for
// each, as each has its own fake systemd.
func kubeadmNodes(t *testing.T) (nodes []*enrolments.Node, groups []any) {
	t.Helper()
	program := kubecri
	program.Env = []string{cluster.InventoryVariable + "=" + inventory}
	for _, n := range shared.Nodes {
		node, err := enrolments.NewNode(shared, n, options, filepath.Join(dir, n.Name), program)
		if err != nil {
			t.Fatal(err)
		}
		if err := node.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		environment := map[string]string{}
		for _, variable := range node.Kubecri("enrol").Env {
			name, value, _ := strings.Cut(variable, "=")
			environment[name] = value
		}
		var env []any
		for name, value := range environment {
			env = append(env, map[string]any{"name": name, "value": value})
		}
		nodes = append(nodes, node)
		groups = append(groups, map[string]any{
			"name": n.Name, "plugins": []any{"simgpu"}, "env": env,
			"nodeSelector": map[string]any{chosen: "true", corev1.LabelHostname: n.Name},
		})
	}
	return nodes, groups
}

// filesOf are the files of the nodes that an enrolment may change.
func (s *story) filesOf(nodes []*enrolments.Node) map[string]string {
	s.Helper()
	all := map[string]string{}
	for _, node := range nodes {
		files, err := node.Files()
		s.must(err)
		for path, content := range files {
			all[path] = content
		}
	}
	return all
}
