// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/cgroup"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

// inspect returns what a cluster in the directory dir could leave behind on the machine: mounts,
// network links, cgroups, processes, files. Of what changes without the cluster's doing, it shows
// nothing.
func inspect(t *testing.T, dir string) map[string]bool {
	t.Helper()
	seen := map[string]bool{}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		seen["mount "+line] = true
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		seen["link "+link.Name] = true
	}
	for _, directory := range []string{"/", "/dev", "/etc", "/opt", "/run", "/var/lib", "/var/log"} {
		entries, err := os.ReadDir(directory)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			seen["file "+filepath.Join(directory, entry.Name())] = true
		}
	}
	for _, pattern := range []string{"*", "."} { // of version 1, and of version 2
		cgroups, err := filepath.Glob(filepath.Join(cgroup.DefaultMount, pattern, cluster.CgroupName(dir)))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range cgroups {
			seen["cgroup "+path] = true
		}
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range commands {
		if line, err := os.ReadFile(path); err == nil && bytes.Contains(line, []byte(dir)) {
			seen["process "+path+" "+string(bytes.ReplaceAll(line, []byte{0}, []byte{' '}))] = true
		}
	}
	return seen
}

// expectNothingNew fails the test if there is anything on the machine that was not there before.
// The kernel may take a moment to bury the dead.
func expectNothingNew(ctx context.Context, t *testing.T, dir string, before map[string]bool) {
	t.Helper()
	for {
		left := inspect(t, dir)
		maps.DeleteFunc(left, func(what string, _ bool) bool { return before[what] })
		if len(left) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the cluster left behind: %q", slices.Sorted(maps.Keys(left)))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// expectFilesGone fails the test unless a cluster's directory has at most its logs left.
func expectFilesGone(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.Name() != "logs" {
			t.Errorf("the cluster's directory still holds %s", entry.Name())
		}
	}
}

// downAfterTest keeps a test that fails from leaving its cluster behind.
func downAfterTest(t *testing.T, dir string) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), timeout)
		defer cancel()
		if err := cluster.Down(ctx, dir); err != nil {
			t.Error(err)
		}
	})
}

func otherOptions(t *testing.T, dir string) cluster.Options {
	options, err := clustertest.Options("other", 1)
	if err != nil {
		t.Fatal(err)
	}
	options.Dir = dir
	return options
}

func TestASecondClusterLeavesNothingBehind(t *testing.T) {
	ctx := testContext(t)
	dir := t.TempDir()
	before := inspect(t, dir)

	downAfterTest(t, dir)
	other, err := cluster.Start(ctx, otherOptions(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	for namespace, c := range map[string]*cluster.Cluster{
		metav1.NamespaceDefault:                 other,
		clustertest.Namespace(t, shared.Client): shared,
	} {
		if _, err := c.Client.RunPod(ctx, webServer("web", namespace, c.Nodes[0].Name)); err != nil {
			t.Error(err)
		}
	}
	if err := other.Stop(ctx); err != nil {
		t.Fatal(err)
	}

	expectNothingNew(ctx, t, dir, before)
	expectFilesGone(t, dir)
}

// launcherVariable makes this test's program start a cluster in the directory it names, and wait to
// be killed.
const launcherVariable = "KUBEDEVICE_E2E_LAUNCH"

func launch(dir string) {
	options, err := clustertest.Options("other", 1)
	if err == nil {
		options.Dir = dir
		_, err = cluster.Start(context.Background(), options)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}

func TestALauncherKilledAtAnyPointLeavesNothingThatDownDoesNotRemove(t *testing.T) {
	for _, point := range []string{
		"pki/ca.crt", "sandboxes/control-plane/root", "logs/control-plane/sandbox.log", "sandboxes/node-1/var",
		"logs/control-plane/etcd.log",
		"logs/node-1/containerd.log", "logs/node-1/kubelet.log", "logs/control-plane/kube-scheduler.log", "state.json",
	} {
		t.Run("when "+strings.ReplaceAll(point, "/", " ")+" exists", func(t *testing.T) {
			ctx := testContext(t)
			dir := t.TempDir()
			before := inspect(t, dir)
			downAfterTest(t, dir)
			launcher := exec.Command(os.Args[0])
			launcher.Env = append(os.Environ(), launcherVariable+"="+dir)
			launcher.Stderr = os.Stderr
			if err := launcher.Start(); err != nil {
				t.Fatal(err)
			}
			awaitFile(ctx, t, filepath.Join(dir, point))
			if err := launcher.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			launcher.Wait() //nolint:errcheck // it has been killed

			if err := cluster.Down(ctx, dir); err != nil {
				t.Fatal(err)
			}

			expectNothingNew(ctx, t, dir, before)
			expectFilesGone(t, dir)
		})
	}
}

func awaitFile(ctx context.Context, t *testing.T, path string) {
	t.Helper()
	if err := await.Success(ctx, path, func(context.Context) error {
		_, err := os.Stat(path)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
