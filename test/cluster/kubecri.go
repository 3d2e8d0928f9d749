// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"
)

// Endpoint is where the node's kubelet reaches kubecri, as a URL, inside the node.
const Endpoint = "unix://" + kubecriSocket

// KubecriPID returns the process id, as the machine numbers it, of the kubecri that takes the
// kubelet's new calls. It is an error if there is none, as on a node where it is an NRI plugin.
func (n *Node) KubecriPID(ctx context.Context) (int, error) {
	conn, err := n.sandbox.Dial(ctx, "unix", kubecriSocket)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var listener *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		listener, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if credErr != nil {
		return 0, fmt.Errorf("find the process that listens on %s: %w", kubecriSocket, credErr)
	}
	return int(listener.Pid), nil
}

// RunKubecri runs one of kubecri's other commands on the node, such as grants, and returns what it
// prints.
func (n *Node) RunKubecri(ctx context.Context, args ...string) (string, error) {
	return n.Run(ctx, n.options.Kubecri.Path, args...)
}

// NewKubecri returns one more kubecri for the node, which is not started: a successor, once it is.
// It gets the arguments that every kubecri of the node gets, then the program's own.
func (n *Node) NewKubecri(name string, program Program) *Component {
	own := []string{"--cri-upstream=unix://" + containerdSocket}
	if n.options.nri() {
		own = append(own, "--mode=nri")
	}
	program.Args = slices.Concat(n.kubeletArgs(), own, n.cluster.nodeSeals(), program.Args)
	program.Env = slices.Clone(program.Env)
	if n.options.Inventory != "" {
		program.Env = append(program.Env, InventoryVariable+"="+n.options.Inventory)
	}
	return n.NewComponent(name, program)
}
