// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
)

// roleCommand makes this program be one of the others: role, socket to serve, socket of the
// runtime.
const roleCommand = "role"

// The roles that this program plays itself.
const (
	roleRuntime  = "runtime"
	roleSplice   = "splice"
	roleReencode = "re-encode"
)

// startRole starts this program in a role.
func startRole(ctx context.Context, role, socket, upstream string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return start(ctx, socket, exec.Command(self, roleCommand, role, socket, upstream))
}

// serveRole serves until it is killed.
func serveRole(ctx context.Context, role, socket, upstream string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return err
	}
	switch role {
	case roleRuntime:
		return serveRuntime(listener)
	case roleSplice:
		return serveSplice(listener, upstream)
	case roleReencode:
		return serveReencode(listener, upstream)
	}
	return fmt.Errorf("no role %q", role)
}
