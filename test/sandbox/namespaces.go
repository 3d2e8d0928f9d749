// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// namespace is an open handle on one namespace of a sandbox.
type namespace struct {
	flag int
	file *os.File
}

// kinds are a sandbox's namespaces. Mounts come last: from then on, the machine's own paths are out
// of reach.
var kinds = []struct {
	name string
	flag int
}{
	{"pid", unix.CLONE_NEWPID},
	{"net", unix.CLONE_NEWNET},
	{"uts", unix.CLONE_NEWUTS},
	{"ipc", unix.CLONE_NEWIPC},
	{"mnt", unix.CLONE_NEWNS},
}

func openNamespaces(pid int) ([]namespace, error) {
	var opened []namespace
	for _, kind := range kinds {
		file, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "ns", kind.name))
		if err != nil {
			for _, namespace := range opened {
				namespace.file.Close() //nolint:errcheck // opened for reading
			}
			return nil, err
		}
		opened = append(opened, namespace{flag: kind.flag, file: file})
	}
	return opened, nil
}

// Do runs f on a thread that is inside the sandbox: its mounts, network and host name; processes
// that f starts are in the sandbox altogether. f must not start goroutines and expect them to be
// inside as well. The thread is given up afterwards.
func (r *Sandbox) Do(f func() error) error {
	result := make(chan error, 1)
	onSpareThread(func() {
		if err := r.enter(); err != nil {
			result <- fmt.Errorf("enter sandbox %s: %w", r.config.Name, err)
			return
		}
		result <- f()
	})
	return <-result
}

// onSpareThread runs f on a thread that ends with it. The process's first thread is never taken, as
// it cannot end.
func onSpareThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			onSpareThread(f) // tries again, with luck while this goroutine still holds the first thread
			runtime.UnlockOSThread()
			return
		}
		f() // and no unlock: so the runtime ends the thread, whose namespaces are not the others'
	}()
}

// enter moves the calling thread, which must be locked, into the sandbox.
func (r *Sandbox) enter() error {
	// a thread that shares its root and working directory may not change mounts
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	for _, namespace := range r.namespaces {
		if err := unix.Setns(int(namespace.file.Fd()), namespace.flag); err != nil {
			return err
		}
	}
	return nil
}

// Dial connects to an address inside the sandbox: "tcp" with a literal IP address and a port, or
// "unix" with a path.
func (r *Sandbox) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := r.Do(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// NetworkNamespace returns a handle on the sandbox's network, for as long as the sandbox is open.
func (r *Sandbox) NetworkNamespace() *os.File {
	for _, namespace := range r.namespaces {
		if namespace.flag == unix.CLONE_NEWNET {
			return namespace.file
		}
	}
	return nil
}
