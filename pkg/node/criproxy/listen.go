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

// socketMode lets only root connect: a client of the runtime controls the node.
const socketMode = 0o600

// Listen serves the Unix socket at path, for its owner only. It makes the socket at a temporary
// path and renames it over path. So it can replace the socket of a running or dead process without
// a gap: the other process keeps its connections, and new ones arrive here. It makes missing
// directories.
//
// Closing the socket removes path if it still belongs to the socket.
func Listen(path string) (*Socket, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := checkReplaceable(path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	temporary := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.Remove(temporary); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	config := net.ListenConfig{Control: restrict}
	listener, err := config.Listen(context.Background(), "unix", temporary)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	own, err := os.Lstat(temporary)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		listener.Close()
		os.Remove(temporary)
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return &Socket{Listener: listener, path: path, own: own}, nil
}

// checkReplaceable returns an error for a path with a file that is no socket.
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

// restrict sets the mode before the socket gets a name, so that no other user can connect.
func restrict(_, _ string, raw syscall.RawConn) error {
	var err error
	if controlErr := raw.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), socketMode) }); controlErr != nil {
		return controlErr
	}
	return err
}
