// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kubedevice/kubedevice/test/binaries"
	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// startTimeout is how long a cluster may take to start, on a busy machine with few cores.
const startTimeout = 3 * time.Minute

// The words that stand in a program's place for doing without KubeDevice's.
const (
	upstream = "upstream"
	none     = "none"
)

// upFlags are the flags of "cluster up".
type upFlags struct {
	dir                         string
	nodes                       int
	scheduler, schedulerPlugins string
	kubecri, devicePlugins      string
	kubernetes, runtime, mode   string
	inventories                 []string
	manifests                   []string
}

func newUpCommand() *cobra.Command {
	var flags upFlags
	command := &cobra.Command{
		Use:   "up",
		Short: "Build what is missing, start a cluster, and return when pods can be scheduled",
		Long: `Build what is missing, start a cluster, and return when pods can be scheduled.
A cluster that runs already in the same directory is taken down first.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return up(command.Context(), flags) },
	}
	command.Flags().AddFlagSet(flags.set())
	return command
}

// set returns the flags as a set that fills f.
func (f *upFlags) set() *pflag.FlagSet {
	set := pflag.NewFlagSet("up", pflag.ContinueOnError)
	addDir(set, &f.dir)
	set.IntVar(&f.nodes, "nodes", 2, "number of nodes")
	set.Var(pathValue{&f.scheduler, []string{upstream}}, "scheduler",
		"scheduler program, or "+upstream+" for Kubernetes' own (default _output/kube-scheduler)")
	set.Var(pathValue{path: &f.schedulerPlugins}, "scheduler-plugins",
		"directory of device scheduler plugins (default _output/plugins/scheduler)")
	set.Var(pathValue{&f.kubecri, []string{none}}, "kubecri",
		"CRI proxy program, or "+none+" to do without (default _output/kubecri)")
	set.Var(pathValue{path: &f.devicePlugins}, "device-plugins",
		"directory of device plugins (default _output/plugins/simulated)")
	set.StringVar(&f.kubernetes, "kubernetes", "", "version of API server, controller manager and kubelets, "+
		string(cluster.Kubernetes134)+" to "+string(cluster.Kubernetes137)+" (default "+
		string(cluster.Kubernetes137)+")")
	set.StringVar(&f.runtime, "runtime", "", "container runtime of the nodes, "+string(cluster.Containerd24)+", "+
		string(cluster.Containerd23)+" or "+string(cluster.Containerd17)+" (default "+string(cluster.Containerd24)+")")
	set.StringVar(&f.mode, "mode", "", "how kubecri hears of containers, "+string(cluster.ModeCRI)+" or "+
		string(cluster.ModeNRI)+" (default "+string(cluster.ModeCRI)+")")
	set.Var(pathsValue{&f.inventories}, "inventory",
		"file with the simulated GPUs of a node; of several, the first is for the first node and so on, the last for "+
			"all further nodes")
	set.Var(pathsValue{&f.manifests}, "manifests",
		"files or directories of manifests to apply at the start, besides roles and policies of deploy")
	return set
}

func (f *upFlags) options() (cluster.Options, error) {
	options, err := cluster.Default(f.nodes)
	if err != nil {
		return options, err
	}
	options.Dir = cmp.Or(f.dir, options.Dir)
	options.Manifests = append(options.Manifests, f.manifests...)
	options.Kubernetes = cluster.Kubernetes(f.kubernetes)
	options.Scheduler.Path = cmp.Or(f.scheduler, options.Scheduler.Path)
	if f.schedulerPlugins != "" {
		options.Scheduler.Args = []string{"--devschedpath=" + f.schedulerPlugins}
	}
	switch f.scheduler {
	case upstream:
		options.Scheduler = cluster.Program{}
	case "": // one of an earlier release may not know the flag
		options.Scheduler.Args = append(options.Scheduler.Args, cluster.ServesDevices)
	}
	for i := range options.Nodes {
		node := &options.Nodes[i]
		node.Kubecri.Path = cmp.Or(f.kubecri, node.Kubecri.Path)
		if f.devicePlugins != "" {
			node.Kubecri.Args = []string{"--cridevices=" + f.devicePlugins}
		}
		node.Runtime = cluster.Runtime(f.runtime)
		node.Mode = cluster.Mode(f.mode)
		if f.kubecri == none {
			node.Kubecri = nil
		}
		if len(f.inventories) > 0 {
			node.Inventory = f.inventories[min(i, len(f.inventories)-1)]
		}
	}
	return options, nil
}

func up(ctx context.Context, flags upFlags) error {
	options, err := flags.options()
	if err != nil {
		return err
	}
	if err := build(ctx, options.Programs, options.Extras()...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	began := time.Now()
	started, err := cluster.Start(ctx, options)
	if err != nil {
		return err
	}
	fmt.Printf(
		"%d nodes are ready after %.1f s; the logs are in %s; to use the cluster:\n  export KUBECONFIG=%s\n  %s get "+
			"nodes\n",
		len(options.Nodes), time.Since(began).Seconds(), filepath.Join(options.Dir, "logs"),
		filepath.Join(options.Dir, "kubeconfig"), filepath.Join(options.Programs, "kubectl"))
	if flags.scheduler == "" {
		fmt.Printf("to ask the scheduler, for example:\n  kubectl device why POD --scheduler=%s\n",
			started.SchedulerURL())
	}
	return nil
}

func newBuildCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "build [EXTRA...]",
		Short: "Build the programs that clusters run, as far as they are missing or out of date",
		Long: fmt.Sprintf(`Build the programs that clusters run, as far as they are missing or out of date.
Extras are what only some need: %s.`, strings.Join(binaries.ExtraNames(), ", ")),
		RunE: func(command *cobra.Command, args []string) error {
			options, err := cluster.Default(0)
			if err != nil {
				return err
			}
			var extras []binaries.Extra
			for _, name := range args {
				extras = append(extras, binaries.Extra(name))
			}
			return build(command.Context(), options.Programs, extras...)
		},
	}
}

func build(ctx context.Context, programs string, extras ...binaries.Extra) error {
	root, err := checkout.Root()
	if err != nil {
		return err
	}
	return binaries.Build(ctx, filepath.Join(root, "test"), programs, os.Stdout, extras...)
}
