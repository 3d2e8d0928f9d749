// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// stateDir is kubecri's, inside a node.
const stateDir = "/var/lib/kubedevice"

// runAsUser runs a shell command on the node forged as a user without rights there. It succeeds if
// the command does.
func runAsUser(ctx context.Context, p *trial, command string) (Got, error) {
	said, err := p.asUser(ctx, forged, command)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return Got{Succeeds, strings.TrimSpace(said)}, nil
	case errors.As(err, &exit):
		return Got{RefusedByNode, strings.TrimSpace(said)}, nil
	default:
		return Got{}, err
	}
}

// openPath lets everybody on the node forged reach and write a path, until the attempt ends.
func openPath(ctx context.Context, p *trial, path string) (Got, error) {
	run := func(ctx context.Context, script string) (string, error) {
		return p.node(forged).Run(ctx, "/bin/sh", "-c", script)
	}
	var paths []string
	for at := path; at != "/" && at != "/var" && at != "/run"; at = at[:max(1, strings.LastIndexByte(at, '/'))] {
		paths = append(paths, at)
	}
	modes, err := run(ctx, "stat -c 'chmod %a %n' "+strings.Join(paths, " "))
	if err != nil {
		return Got{}, fmt.Errorf("read the modes of %q: %w", paths, err)
	}
	p.undo = append(p.undo, func(ctx context.Context) error {
		_, err := run(ctx, "rm -f "+stateDir+"/attacker "+stateDir+"/*/attacker; "+modes)
		return err
	})
	_, err = run(ctx, "chmod 0777 "+strings.Join(paths, " "))
	return Got{}, err
}
