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

// files are attempts of somebody on a node who is not root. Without the defence, the mode of the
// path and of the directories above it lets everybody in.
func files() []*Attempt {
	const denied = "ermission denied"
	var attempts []*Attempt
	for _, file := range []struct{ id, what, command, path string }{
		{"socket-cri", "calls kubecri in the kubelet's place",
			"crictl --timeout=20s --runtime-endpoint=unix:///run/kubedevice/kubecri.sock version",
			"/run/kubedevice/kubecri.sock"},
		{"socket-register", "reaches the socket where device plugins register", dial("device-plugins/kubelet.sock"),
			stateDir + "/device-plugins/kubelet.sock"},
		{"socket-pod-resources", "lists which pod holds which device", dial("pod-resources/kubelet.sock"),
			stateDir + "/pod-resources/kubelet.sock"},
		{"write-device-plugins", "puts a socket into the directory of the device plugins",
			"touch " + stateDir + "/device-plugins/attacker", stateDir + "/device-plugins"},
		{"write-registry", "puts a socket into the plugins registry", "touch " + stateDir +
			"/plugins_registry/attacker",
			stateDir + "/plugins_registry"},
		{"write-state", "puts a file into the state directory", "touch " + stateDir + "/attacker", stateDir},
		{"read-grants", "reads who holds which device", "cat " + stateDir + "/grants", stateDir + "/grants"},
		{"write-grants", "writes itself a device", "echo >> " + stateDir + "/grants", stateDir + "/grants"},
		{"read-pods", "reads the state file of the node's pods", "cat " + stateDir + "/pods", stateDir + "/pods"},
	} {
		attempts = append(attempts, &Attempt{
			ID: file.id, Who: LocalUser, What: file.what, Defence: Permissions,
			Want: everywhere(RefusedByNode, denied),
			Try: func(ctx context.Context, s *Stage) (Got, error) {
				return s.unprivileged(ctx, file.command)
			},
			Alone: true,
			Off: Off{How: "the path's mode is 0777", Try: func(ctx context.Context, s *Stage) (Got, error) {
				restore, err := s.open(ctx, file.path)
				if err != nil {
					return Got{}, err
				}
				got, err := s.unprivileged(ctx, file.command)
				return got, errors.Join(err, restore(context.WithoutCancel(ctx)))
			}},
		})
	}
	attempts[0].Sample, attempts[0].Modes = true, proxyAlone // with NRI, the socket is the runtime's own
	return attempts
}

// dial returns a command that calls a socket in the state directory that serves something else than
// crictl calls: it says so when it is reached.
func dial(socket string) string {
	return "crictl --timeout=20s --runtime-endpoint=unix://" + stateDir + "/" + socket +
		" version 2>&1 | tee /dev/stderr | " +
		"grep -qi 'unimplemented\\|unknown service'"
}

// unprivileged runs a command on the node forged as a user without rights there. It succeeds if the
// command does.
func (s *Stage) unprivileged(ctx context.Context, command string) (Got, error) {
	said, err := s.asUser(ctx, forged, command)
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

// open lets everybody on the node forged reach and write a path, until restore.
func (s *Stage) open(ctx context.Context, path string) (restore func(context.Context) error, err error) {
	run := func(ctx context.Context, script string) (string, error) {
		return s.node(forged).Run(ctx, "/bin/sh", "-c", script)
	}
	var paths []string
	for at := path; at != "/" && at != "/var" && at != "/run"; at = at[:max(1, strings.LastIndexByte(at, '/'))] {
		paths = append(paths, at)
	}
	modes, err := run(ctx, "stat -c 'chmod %a %n' "+strings.Join(paths, " "))
	if err != nil {
		return nil, fmt.Errorf("read the modes of %q: %w", paths, err)
	}
	restore = func(ctx context.Context) error {
		_, err := run(ctx, "rm -f "+stateDir+"/attacker "+stateDir+"/*/attacker; "+modes)
		return err
	}
	_, err = run(ctx, "chmod 0777 "+strings.Join(paths, " "))
	return restore, err
}
