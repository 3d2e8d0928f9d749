// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduler makes the Kubernetes scheduler choose exact devices. It is upstream's command
// with one more framework plugin, which is in package frameworkplugin.
package scheduler

import (
	"context"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/scheduler/devicepage"
	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
	"github.com/kubedevice/kubedevice/pkg/scheduler/frameworkplugin"
	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
	"github.com/kubedevice/kubedevice/pkg/scheduler/policies"
)

// DefaultPluginPath is where --devschedpath points when it is not given.
const DefaultPluginPath = "/schedulerplugins"

// NewCommand returns upstream's kube-scheduler command with more flags and one more framework
// plugin, which is enabled in every profile. The device schedulers are those that are built in, in
// this order, and after them those of the directory --devschedpath, which are loaded when the
// command runs, after flags and logging are set up. Call it once per process: it changes the
// process-wide defaults of scheduler configurations.
func NewCommand(builtIn ...dispatch.Named) *cobra.Command {
	enableByDefault()
	var pluginPath string
	var allowWritable bool
	verdictCache := true
	page := devicepage.NewServer()
	cmd := app.NewSchedulerCommand(func(registry frameworkruntime.Registry) error {
		schedulers := dispatch.Load(context.Background(), metrics.NewRecorder(), pluginPath, allowWritable, builtIn...)
		options := frameworkplugin.Options{NoVerdictCache: !verdictCache}
		return registry.Register(frameworkplugin.Name, newFactory(schedulers, options, page))
	})
	page.Follow(cmd.Flags())

	flags := pflag.NewFlagSet("devices", pflag.ExitOnError)
	flags.StringVar(&pluginPath, "devschedpath", DefaultPluginPath, "Directory of device scheduler plugins (*.so), "+
		"loaded in the order of their file names. A file that cannot be loaded is reported and left out.")
	flags.BoolVar(&allowWritable, pluginload.AllowWritableFlag, false,
		"Load plugin files that users other than root may write or replace.")
	flags.BoolVar(&verdictCache, "device-verdict-cache", true, "Cache on which nodes the devices for a pod fit. "+
		"Without it every node is evaluated for every pod: use that only to find out whether the cache is the "+
		"cause of a problem, or what it is worth.")
	page.AddFlags(flags)
	cmd.Flags().AddFlagSet(flags)
	appendHelp(cmd, flags)
	return cmd
}

// newFactory returns the factory of the framework plugin. The framework calls it once per profile;
// what the profiles share is made in the first call, and so are the page of devices and the check
// of the admission policies.
func newFactory(
	schedulers *dispatch.Set, options frameworkplugin.Options, page *devicepage.Server,
) frameworkruntime.PluginFactory {
	var once sync.Once
	var shared *frameworkplugin.Shared
	var err error
	start := func(ctx context.Context, handle fwk.Handle) {
		if shared, err = frameworkplugin.NewShared(ctx, schedulers, handle, options); err != nil {
			return
		}
		metrics.RegisterCaches(schedulers.CacheStats, shared.Nodes().CacheStats)
		shared.Run(func(ctx context.Context) { policies.Watch(ctx, handle.ClientSet()) })
		core := handle.SharedInformerFactory().Core().V1()
		err = page.Start(shared.Run, devicepage.NewHandler(&devicepage.Cluster{
			Schedulers: schedulers,
			States:     shared.Nodes(),
			NodeLister: core.Nodes().Lister(),
			PodLister:  core.Pods().Lister(),
			PodsOn:     shared.PodsOn,
		}))
	}
	return func(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		once.Do(func() { start(ctx, handle) })
		if err != nil {
			return nil, err
		}
		return frameworkplugin.New(handle, shared), nil
	}
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
