// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kubedevice/kubedevice/test/cgroup"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

func TestMain(m *testing.M) {
	if code, skipped := clustertest.Skipped(); skipped {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func open(t *testing.T) *cgroup.Tree {
	t.Helper()
	tree, err := cgroup.Open(cgroup.DefaultMount, "kubedevice-"+filepath.Base(t.TempDir())+"-"+
		filepath.Base(filepath.Dir(t.TempDir())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tree.Remove(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return tree
}

func TestProcessesOfATreeAreFoundAndKilledAndTheTreeIsGone(t *testing.T) {
	tree := open(t)
	sleepers := map[string]*exec.Cmd{}
	var all []int
	for _, name := range []string{"a/b", "a/c", "d"} {
		sleeper := exec.Command("sleep", "1000")
		if err := sleeper.Start(); err != nil {
			t.Fatal(err)
		}
		if err := tree.Make(name); err != nil {
			t.Fatal(err)
		}
		if err := tree.Add(name, sleeper.Process.Pid); err != nil {
			t.Fatal(err)
		}
		sleepers[name] = sleeper
		all = append(all, sleeper.Process.Pid)
	}
	slices.Sort(all)
	if got, err := tree.Processes(); err != nil || !slices.Equal(got, all) {
		t.Errorf("processes %v, %v; want %v", got, err, all)
	}
	if got, err := tree.Sub("d").Processes(); err != nil || !slices.Equal(got, []int{sleepers["d"].Process.Pid}) {
		t.Errorf("processes of d: %v, %v; want %d", got, err, sleepers["d"].Process.Pid)
	}

	if err := tree.Sub("d").Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := sleepers["d"].Wait(); err == nil {
		t.Error("the process of d ended by itself")
	}
	if got, err := tree.Processes(); err != nil || len(got) != 2 {
		t.Errorf("processes without those of d: %v, %v", got, err)
	}
	if err := tree.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a/b", "a/c"} {
		if err := sleepers[name].Wait(); err == nil {
			t.Errorf("the process of %s ended by itself", name)
		}
	}
	for _, pattern := range []string{"*", "."} { // of version 1, and of version 2
		left, err := filepath.Glob(filepath.Join(cgroup.DefaultMount, pattern, tree.Path("")))
		if err != nil || len(left) > 0 {
			t.Errorf("left: %q, %v", left, err)
		}
	}
}

func TestATreeThatDoesNotExistHasNoProcessesAndCanBeRemoved(t *testing.T) {
	tree := open(t)
	if got, err := tree.Processes(); err != nil || len(got) > 0 {
		t.Errorf("processes %v, %v", got, err)
	}
	if err := tree.Remove(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAMachineWithoutCgroupsIsAnError(t *testing.T) {
	if _, err := cgroup.Open(t.TempDir(), "name"); err == nil {
		t.Error("no error")
	}
}
