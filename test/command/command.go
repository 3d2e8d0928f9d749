// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package command is what the main functions of all test programs do.
package command

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Main calls run, whose context ends with SIGINT and SIGTERM. An error is printed with the
// program's name, and ends the process with status 1.
func Main(name string, run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: FAIL: %v\n", name, err)
		os.Exit(1)
	}
}
