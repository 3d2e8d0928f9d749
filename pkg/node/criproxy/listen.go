// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// socketMode lets root alone connect: whoever can talk to the runtime owns the node.
const socketMode = 0o600

// Listen serves the Unix socket at path, for its owner only. The socket is made beside path and
// renamed over it, so a path that another process still serves, or that a dead one left behind,
// changes hands without a moment in which it is missing: the other process keeps its connections,
// and new ones come here. Missing directories are made.
//
// Closing the socket removes path if it is still the socket's own.
func Listen(path string) (*Socket, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := checkReplaceable(path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	beside := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.Remove(beside); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	config := net.ListenConfig{Control: restrict}
	listener, err := config.Listen(context.Background(), "unix", beside)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	own, err := os.Lstat(beside)
	if err == nil {
		err = os.Rename(beside, path)
	}
	if err != nil {
		listener.Close()
		os.Remove(beside)
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return &Socket{Listener: listener, path: path, own: own}, nil
}

// checkReplaceable refuses a path that holds anything but a socket.
func checkReplaceable(path string) error {
	info, err := os.Lstat(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("there is a file of another kind (%s); remove it or choose another path", info.Mode().Type())
	}
	return nil
}

// restrict sets the mode before the socket gets a name, so that nobody else ever can connect.
func restrict(_, _ string, raw syscall.RawConn) error {
	var err error
	if controlErr := raw.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), socketMode) }); controlErr != nil {
		return controlErr
	}
	return err
}
