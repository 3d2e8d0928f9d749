// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo shows KubeDevice's main job on a real cluster, which it builds, starts and takes
// down.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/kubedevice/kubedevice/test/demo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := demo.Run(ctx, os.Stdout); err != nil {
		stop()
		fmt.Fprintf(os.Stderr, "\nThe demo failed: %v\n", err)
		os.Exit(1)
	}
	fmt.Println("\nAll as it should be: every container has exactly the devices that the scheduler chose.")
}
