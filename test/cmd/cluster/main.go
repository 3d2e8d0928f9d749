// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command cluster starts, shows and takes down real Kubernetes clusters on this machine: see
// package cluster.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "cluster",
		Short: "Real Kubernetes clusters on this machine, with KubeDevice in them",
		Long: `Real Kubernetes clusters on this machine, with KubeDevice in them.
Each flag can also be set by an environment variable: --device-plugins by
KUBEDEVICE_CLUSTER_DEVICE_PLUGINS, and so on.`,
		PersistentPreRunE: func(command *cobra.Command, _ []string) error { return fromEnvironment(command.Flags()) },
		SilenceUsage:      true,
		SilenceErrors:     true,
	}
	root.AddCommand(newBuildCommand(), newUpCommand(), newDownCommand(), newStatusCommand(), newExecCommand(),
		newRestartCommand())
	return root
}
