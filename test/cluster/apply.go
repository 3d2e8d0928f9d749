// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// Apply applies manifests, files or directories, as kubectl apply --server-side does.
func (c *Cluster) Apply(ctx context.Context, paths ...string) error {
	if len(paths) == 0 {
		return nil
	}
	args := []string{"apply", "--server-side", "--recursive"}
	for _, path := range paths {
		args = append(args, "--filename="+path)
	}
	_, err := c.Kubectl(ctx, args...)
	return err
}

// Kubectl runs kubectl on the machine, as an administrator, and returns what it prints.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	command := c.KubectlCommand(ctx, args...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	stdout, err := command.Output()
	if err != nil {
		return string(stdout), fmt.Errorf("kubectl %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(stdout), nil
}

// KubectlCommand returns kubectl as Kubectl runs it, for a caller that feeds it or reads along. It
// is killed when ctx ends.
func (c *Cluster) KubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, filepath.Join(c.options.Programs, "kubectl"), args...)
	command.Env = append(c.Environment(), "KUBECONFIG="+c.layout.kubeconfig(), "KUBECACHEDIR="+c.layout.kubectlCache())
	return command
}
