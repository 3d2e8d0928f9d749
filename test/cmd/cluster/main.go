// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command cluster starts, shows and takes down real Kubernetes clusters on this machine: see
// package cluster.
package main

import (
	"github.com/spf13/cobra"

	"github.com/kubedevice/kubedevice/test/command"
)

func main() { command.Main("cluster", newCommand().ExecuteContext) }

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
