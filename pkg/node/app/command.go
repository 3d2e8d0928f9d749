// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app is the kubecri command: its flags, and the life of its process.
package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/seal/keycommand"
)

const long = `kubecri runs between the kubelet and the container runtime. It passes every call on unchanged,
except the creation of a container of a pod that holds devices: to that it adds the devices that the
scheduler chose for it. It publishes the node's devices, and refuses to create a container of a pod
that requests devices and has not been granted them.

It accepts the kubelet's arguments, so that both can be started from one set: flags of the kubelet
that are not listed here have no effect. Without any argument it runs as its configuration file
` + installedConfiguration + ` says, if there is one.`

// NewCommand returns the kubecri command for args, the program's arguments without its name.
func NewCommand(args []string) *cobra.Command {
	_, command := newCommand(args)
	return command
}

// newCommand also returns the options that the command's flags set.
func newCommand(args []string) (*Options, *cobra.Command) {
	options := NewOptions()
	logging := logsapi.NewLoggingConfiguration()
	command := &cobra.Command{
		Use:           "kubecri",
		Short:         "Give containers the devices that the scheduler chose for them",
		Long:          long,
		Args:          cobra.NoArgs,
		Version:       version.Get().String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if command.Flags().NFlag() == 0 {
				if !exists(options.installedConfig) {
					return helpInstead(command, options.installedConfig)
				}
				options.configFile = options.installedConfig
			}
			if err := options.complete(command.Flags()); err != nil {
				return err
			}
			logs.InitLogs()
			defer logs.FlushLogs()
			if err := logsapi.ValidateAndApply(logging, nil); err != nil {
				return err
			}
			ctx, stop := untilSignalled(command.Context(), os.Stderr)
			defer stop()
			return Run(klog.NewContext(ctx, klog.Background()), options)
		},
	}
	command.SetArgs(args)
	command.SetVersionTemplate(versionLine() + "\n")
	flags := command.Flags()
	flags.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	flags.SortFlags = false
	options.addFlags(flags)
	logsapi.AddFlags(logging, flags)
	addIgnoredFlags(flags)
	command.AddCommand(grantsCommand(), driverCommand(), pluginCommand(), cleanupCommand(),
		keycommand.New(podCoreClient), enrolCommand(), leaveCommand(), agentCommand(), onHostCommand(),
		uninstallCommand())
	command.FParseErrWhitelist.UnknownFlags = ignoresUnknownFlags(args)
	return options, command
}

// helpInstead prints the command's help, since nothing says how to run, and returns that as an
// error.
func helpInstead(command *cobra.Command, configuration string) error {
	if err := command.Help(); err != nil {
		return err
	}
	return fmt.Errorf("nothing says how to run: there are no flags, and there is no %s; \"kubecri enrol\" puts it "+
		"into service", configuration)
}

// versionLine is what --version prints.
func versionLine() string { return "KubeDevice " + version.Get().String() }

// ignoresUnknownFlags looks for --ignore-unknown-kubelet-flags wherever it stands, as it concerns
// the flags before it too.
func ignoresUnknownFlags(args []string) bool {
	probe := pflag.NewFlagSet("probe", pflag.ContinueOnError)
	probe.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	ignore := probe.Bool(ignoreUnknownFlag, false, "")
	for _, arg := range slices.DeleteFunc(slices.Clone(args),
		func(arg string) bool { return !strings.HasPrefix(arg, "--ignore") }) {
		// Another flag that begins so is not for this set; the command's own parsing judges it.
		_ = probe.Parse([]string{arg})
	}
	return *ignore
}

// Main runs the command with the process's arguments and returns its exit status.
func Main() int {
	err := NewCommand(os.Args[1:]).ExecuteContext(context.Background())
	if status := (exitStatus{}); errors.As(err, &status) {
		return status.code
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubecri:", err)
		return 1
	}
	return 0
}
