// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"fmt"
	"net"
	"os"

	"github.com/coreos/go-systemd/v22/activation"
)

// Inherit returns the Unix socket at path that systemd passed to this process at its start
// (sd_listen_fds(3)), or nil if systemd passed none. It must be the only passed socket. The socket
// belongs to systemd: it exists before and after this process, so that clients can wait during a
// restart, and closing the listener does not remove path.
//
// Call it once, before any child process starts: until then children inherit the socket, too.
func Inherit(path string) (net.Listener, error) {
	return inherit(activation.Files(true), path)
}

// inherit is Inherit for these files, which it closes.
func inherit(files []*os.File, path string) (net.Listener, error) {
	defer func() {
		for _, file := range files {
			file.Close() //nolint:errcheck // the listener has a copy
		}
	}()
	switch len(files) {
	case 0:
		return nil, nil
	case 1:
	default:
		return nil, fmt.Errorf(
			"systemd handed over %d sockets, want only %s: leave one ListenStream= in kubecri.socket", len(files), path)
	}
	listener, err := net.FileListener(files[0])
	if err != nil {
		return nil, fmt.Errorf(
			"systemd handed over something that cannot be listened on: %w; kubecri.socket needs ListenStream=%s", err,
			path)
	}
	own, ok := listener.(*net.UnixListener)
	if !ok || !samePath(own.Addr().String(), path) {
		listener.Close()
		return nil, fmt.Errorf("systemd handed over the socket %s, but the kubelet is to be served on %s: "+
			"make ListenStream= of kubecri.socket and --container-runtime-endpoint agree", listener.Addr(), path)
	}
	own.SetUnlinkOnClose(false)
	return own, nil
}

// samePath reports whether both are names of one file, such as /var/run/x and /run/x.
func samePath(a, b string) bool {
	if a == b {
		return true
	}
	inA, errA := os.Stat(a)
	inB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(inA, inB)
}
