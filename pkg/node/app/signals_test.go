// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bufio"
	"context"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestSignals(t *testing.T) {
	read, written := io.Pipe()
	ctx, stop := untilSignalled(context.Background(), written)
	signal := func(s os.Signal) {
		t.Helper()
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Signal(s)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGUSR1)
	line, err := bufio.NewReader(read).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "goroutine ") {
		t.Errorf("SIGUSR1 wrote %q, %v; want stacks", line, err)
	}
	read.Close()
	if ctx.Err() != nil {
		t.Error("SIGUSR1 ended the process's work")
	}
	signal(syscall.SIGTERM)
	<-ctx.Done()
	stop()
}
