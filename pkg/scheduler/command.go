// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
)

// DefaultPluginPath is where --devschedpath points when it is not given.
const DefaultPluginPath = "/schedulerplugins"

// NewCommand returns upstream's kube-scheduler command with two more flags, --devschedpath and --devices-secure-port, and one
// more framework plugin, which is on in every profile. The device schedulers are those that are built in, in this order, and after them
// those of the folder, which are loaded when the command runs, after flags and logging are set up. Call it once per
// process: it changes the process-wide defaults of scheduler configurations.
func NewCommand(builtIn ...dispatch.Named) *cobra.Command {
	enableByDefault()
	var pluginPath string
	server := newPageServer()
	cmd := app.NewSchedulerCommand(func(registry frameworkruntime.Registry) error {
		schedulers := dispatch.Load(context.Background(), newRecorder(), pluginPath, builtIn...)
		return registry.Register(Name, newFactory(schedulers, server))
	})
	server.follow(cmd.Flags())

	flags := pflag.NewFlagSet("devices", pflag.ExitOnError)
	flags.StringVar(&pluginPath, "devschedpath", DefaultPluginPath,
		"Folder of device scheduler plugins (*.so), loaded in the order of their file names. A file that cannot be loaded is reported and left out.")
	server.addFlags(flags)
	cmd.Flags().AddFlagSet(flags)
	appendHelp(cmd, flags)
	return cmd
}

// appendHelp prints the section of our flags after upstream's usage and help, which list their own sections only.
func appendHelp(cmd *cobra.Command, flags *pflag.FlagSet) {
	section := "\nDevices flags:\n\n" + flags.FlagUsages()
	usage, help := cmd.UsageFunc(), cmd.HelpFunc()
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		if err := usage(cmd); err != nil {
			return err
		}
		cmd.PrintErr(section)
		return nil
	})
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		help(cmd, args)
		cmd.Print(section)
	})
}
