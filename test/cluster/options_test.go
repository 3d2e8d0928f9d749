// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// newOptions returns options that are in order.
func newOptions(t *testing.T) Options {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"sandboxinit", "containerd", "kubelet", "scheduler", "kubecri", "inventory.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return Options{
		Dir: dir, Programs: dir, Scheduler: Program{Path: filepath.Join(dir, "scheduler")},
		Nodes: []NodeOptions{
			{Kubecri: &Program{Path: filepath.Join(dir, "kubecri")}, Inventory: filepath.Join(dir, "inventory.yaml")},
		},
	}
}

func TestOptionsAreCheckedBeforeAnythingStarts(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Options)
		want   string // part of the error; "" for none
	}{
		"all in order": {func(*Options) {}, ""},
		"without KubeDevice": {
			func(o *Options) { o.Scheduler = Program{}; o.Nodes[0].Kubecri = nil }, "",
		},
		"a directory that is not absolute": {func(o *Options) { o.Dir = "here" }, "absolute"},
		"programs that are not built":      {func(o *Options) { o.Programs = "/no/such" }, "not built"},
		"a scheduler that is missing":      {func(o *Options) { o.Scheduler.Path = "/no/such" }, "scheduler: "},
		"a scheduler that is not a path":   {func(o *Options) { o.Scheduler.Path = "such" }, "scheduler: "},
		"a kubecri that is missing": {
			func(o *Options) { o.Nodes[0].Kubecri.Path = "/no/such" }, "kubecri of node-1: ",
		},
		"an inventory that is missing": {
			func(o *Options) { o.Nodes[0].Inventory = "/no/such" }, "inventory of node-1: ",
		},
		"a Kubernetes that is none": {
			func(o *Options) { o.Kubernetes = "1.33" }, `there is no Kubernetes "1.33"`,
		},
		"a Kubernetes that is not built": {func(o *Options) { o.Kubernetes = Kubernetes134 }, "kubelet: "},
		"a runtime that is none": {
			func(o *Options) { o.Nodes[0].Runtime = "cri-o" }, `node-1: there is no runtime "cri-o"`,
		},
		"a mode that is none": {
			func(o *Options) { o.Nodes[0].Mode = "dra" }, `node-1: there is no mode "dra"`,
		},
		"a runtime that is not built": {
			func(o *Options) { o.Nodes[0].Runtime = Containerd17 }, "container runtime of node-1: ",
		},
		"more nodes than addresses": {func(o *Options) { o.Nodes = make([]NodeOptions, 201) }, "201 nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			options := newOptions(t)
			test.change(&options)
			err := options.check()
			if test.want == "" && err != nil || test.want != "" &&
				(err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

func TestEveryNodeHasNamesAndAddressesOfItsOwn(t *testing.T) {
	taken := map[string]int{controlPlaneIP: -1}
	for i := range maxNodes {
		for _, name := range []string{nodeName(i), nodeIP(i), podRange(i)} {
			if other, is := taken[name]; is {
				t.Errorf("%s is that of nodes %d and %d", name, other, i)
			}
			taken[name] = i
		}
	}
	if CgroupName("/a") == CgroupName("/b") {
		t.Error("two directories have one cgroup")
	}
}

func TestTailReturnsTheLastLinesOfALog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for content, want := range map[string]string{
		"":                   "",
		"one\n":              "one",
		"one\ntwo":           "one\ntwo",
		"one\ntwo\nthree\n":  "two\nthree",
		"one\n\n\ntwo\n\n\n": "\ntwo",
	} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := string(tail(path, 2)); got != want {
			t.Errorf("the last two lines of %q are %q, want %q", content, got, want)
		}
	}
}

func TestAttachToADirectoryWithoutAClusterSaysSo(t *testing.T) {
	dir := t.TempDir()
	if _, err := Attach(dir); err == nil || !strings.Contains(err.Error(), "no cluster runs in "+dir) {
		t.Errorf("error %v", err)
	}
}
