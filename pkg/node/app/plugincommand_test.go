// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"syscall"
	"testing"
)

// TestASignalEndsATestOfPlugins has a kubelet device plugin that answers nothing.
func TestASignalEndsATestOfPlugins(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "plugin.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ended := make(chan error)
	go func() {
		_, err := execute("plugin", "test", socketScheme+socket)
		ended <- err
	}()
	connection, err := listener.Accept() // so the test is under way
	if err == nil {
		defer connection.Close()
		err = syscall.Kill(syscall.Getpid(), syscall.SIGTERM)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("error: %v", err)
	}
}
