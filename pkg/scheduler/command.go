// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduler makes the Kubernetes scheduler choose exact devices. It is upstream's command
// with one more framework plugin, which is in package frameworkplugin.
package scheduler

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/apiserver"
	"github.com/kubedevice/kubedevice/pkg/scheduler/claims"
	"github.com/kubedevice/kubedevice/pkg/scheduler/config"
	"github.com/kubedevice/kubedevice/pkg/scheduler/frameworkplugin"
	"github.com/kubedevice/kubedevice/pkg/scheduler/readapi"
)

// NewCommand returns upstream's kube-scheduler command with more flags and one more framework
// plugin, which is enabled in every profile. The device schedulers are those that are built in, in
// this order, and after them those of the plugin directory, which are loaded when the command runs,
// after flags and logging are set up. The plugin's settings are its arguments in the configuration,
// see package config; flags set the same. Call it once per process: it changes the process-wide
// defaults of scheduler configurations.
func NewCommand(builtIn ...allocation.Named) *cobra.Command {
	var settings config.Flags
	enableByDefault(&settings)
	api := readapi.NewServer()
	var cmd *cobra.Command
	cmd = app.NewSchedulerCommand(func(registry frameworkruntime.Registry) error {
		if err := checkArgs(&settings); err != nil {
			return inFile(cmd, err)
		}
		ledger := &madeLedger{}
		if err := registry.Register(claims.Name, newClaimsFactory(ledger)); err != nil {
			return err
		}
		return registry.Register(frameworkplugin.Name, newFactory(builtIn, api, ledger))
	})
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, arguments []string) error {
		// Upstream's error does not name the file.
		if file := configFile(cmd); file != "" {
			if _, err := options.LoadConfigFromFile(klog.Background(), file); err != nil {
				return inFile(cmd, err)
			}
		}
		return run(cmd, arguments)
	}
	api.Follow(cmd.Flags())
	apiserver.Emulate(cmd)

	flags := pflag.NewFlagSet("devices", pflag.ExitOnError)
	settings.AddTo(flags)
	cmd.Flags().AddFlagSet(flags)
	appendHelp(cmd, flags)
	return cmd
}

// configFile returns the file that upstream's flag for it names, or "".
func configFile(cmd *cobra.Command) string { return cmd.Flag("config").Value.String() }

// inFile returns the error with the name of the configuration's file, if there is one.
func inFile(cmd *cobra.Command, err error) error {
	if file := configFile(cmd); file != "" {
		return fmt.Errorf("--config: %s: %w", file, err)
	}
	return err
}

// appendHelp prints the section of our flags after upstream's usage and help, which list their own
// sections only.
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
