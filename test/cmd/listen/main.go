// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command listen listens on a Unix socket and becomes another program, which has the socket as its
// descriptor 3, as systemd hands it to a unit: listen PATH PROGRAM [ARGUMENT...].
package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// first is the descriptor of the first socket that systemd hands over.
const first = 3

func main() {
	err := run(os.Args[1], os.Args[2:])
	fmt.Fprintln(os.Stderr, "listen:", err)
	os.Exit(1)
}

func run(path string, command []string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	file, err := listener.File()
	if err != nil {
		return err
	}
	if err := syscall.Dup3(int(file.Fd()), first, 0); err != nil {
		return err
	}
	return syscall.Exec(command[0], command, os.Environ())
}
