// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
)

// sdkModule is what every plugin is built with.
const sdkModule = "github.com/kubedevice/kubedevice/pkg/sdk"

// sides are the two halves of a plugin, as directories of its sources.
var sides = []string{"device", "scheduler"}

// install puts the two halves of plugins into a node's directory and the scheduler's, by the names
// of their files, and restarts both programs. When the test ends, it takes them out again.
func install(ctx context.Context, t *testing.T, node *cluster.Node,
	plugins map[string]map[string][]byte) (logs map[string]journal) {
	t.Helper()
	directories := map[string]string{"device": files.devicePlugins(node.Name), "scheduler": files.schedulerPlugins()}
	restartBoth := func(ctx context.Context) map[string]journal {
		return map[string]journal{"device": restart(ctx, t, node.Kubecri),
			"scheduler": restart(ctx, t, shared.Scheduler)}
	}
	t.Cleanup(func() {
		for name := range plugins {
			for _, side := range sides {
				if err := os.Remove(filepath.Join(directories[side], name)); err != nil {
					t.Error(err)
				}
			}
		}
		restartBoth(context.WithoutCancel(ctx))
	})
	for name, halves := range plugins {
		for _, side := range sides {
			if err := os.WriteFile(filepath.Join(directories[side], name), halves[side], 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return restartBoth(ctx)
}

// sdkVersion returns the version of the SDK that the programs are built with.
func sdkVersion(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(runGo(t, ".", "list", "-m", "-f", "{{.Version}}", sdkModule))
}

// buildPlugin builds both halves of a plugin as its vendor does: from a module of its own, in a
// directory outside the repository, with nothing but the SDK in some version. The first time, that
// may take longer than a test of the cluster.
func buildPlugin(t *testing.T, source, module, version string) map[string][]byte {
	t.Helper()
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(source)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		runGo(t, dir, "mod", "init", module)
	}
	runGo(t, dir, "mod", "edit", "-require="+sdkModule+"@"+version, "-replace="+sdkModule+"="+filepath.Join(root,
		"pkg", "sdk"))
	built := map[string][]byte{}
	for _, side := range sides {
		file := filepath.Join(dir, side+".so")
		runGo(t, dir, "build", "-buildmode=plugin", "-trimpath", "-o", file, "./"+side)
		if built[side], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	return built
}

func runGo(t *testing.T, dir string, args ...string) (stdout string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "CGO_ENABLED=1", "GOWORK=off")
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go %q: %v\n%s", args, err, stderr.String())
	}
	return string(out)
}
