// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
)

// untilSignalled returns a context that ends at SIGTERM or SIGINT; a second one kills the process.
// Until stop is called, SIGUSR1 writes the stacks of all goroutines to stacks.
func untilSignalled(parent context.Context, stacks io.Writer) (ctx context.Context, stop func()) {
	ctx, restore := signal.NotifyContext(parent, syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, restore)
	dump := make(chan os.Signal, 1)
	signal.Notify(dump, syscall.SIGUSR1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range dump {
			// An error cannot be reported anywhere else.
			_ = pprof.Lookup("goroutine").WriteTo(stacks, 2)
		}
	}()
	return ctx, func() {
		restore()
		signal.Stop(dump)
		close(dump)
		<-done
	}
}
