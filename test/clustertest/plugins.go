// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/kubedevice/kubedevice/test/checkout"
)

// sdkModule is what every plugin is built with.
const sdkModule = "github.com/kubedevice/kubedevice/pkg/sdk"

// AddDevicePlugins puts device plugins into a directory: that of simulated GPUs, and widgets.so,
// which it builds from a source.
func AddDevicePlugins(dir, source string) error {
	root, err := checkout.Root()
	if err != nil {
		return err
	}
	simgpu, err := os.ReadFile(filepath.Join(root, "_output", "plugins", "simulated", "simgpu.so"))
	if err != nil {
		return fmt.Errorf("%w: build it first (make build)", err)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "simgpu.so"), simgpu, 0o644),
		buildPlugin(root, source, filepath.Join(dir, "widgets.so")),
	)
}

// buildPlugin builds a device plugin as its vendor does: from a module of its own, in a directory
// outside the repository.
func buildPlugin(root, source, file string) error {
	dir, err := os.MkdirTemp("", "kubedevice-e2e-plugin-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, os.DirFS(source)); err != nil {
		return err
	}
	version, err := runGo(".", "list", "-m", "-f", "{{.Version}}", sdkModule)
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"mod", "init", "example.com/plugin"},
		{
			"mod", "edit", "-require=" + sdkModule + "@" + version, "-replace=" + sdkModule + "=" + filepath.Join(root,
				"pkg", "sdk"),
		},
		{"build", "-buildmode=plugin", "-trimpath", "-o", file, "./device"},
	} {
		if _, err := runGo(dir, args...); err != nil {
			return err
		}
	}
	return nil
}

func runGo(dir string, args ...string) (stdout string, err error) {
	command := exec.Command("go", args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "CGO_ENABLED=1", "GOWORK=off")
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("go %q: %w\n%s", args, err, &stderr)
	}
	return strings.TrimSpace(string(out)), nil
}
