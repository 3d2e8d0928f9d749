// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
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

// startLimit is how long a cluster may take to start, on a busy machine with few cores.
const startLimit = 3 * time.Minute

// The words that stand in a program's place for doing without KubeDevice's.
const (
	upstream = "upstream"
	none     = "none"
)

// upFlags are the flags of "cluster up".
type upFlags struct {
	dir              string
	nodes            int
	scheduler        string
	schedulerPlugins string
	kubecri          string
	devicePlugins    string
	inventories      []string
	manifests        []string
}

func newUpCommand() *cobra.Command {
	var flags upFlags
	command := &cobra.Command{
		Use:   "up",
		Short: "Build what is missing, start a cluster, and return when pods can be scheduled",
		Long: `Build what is missing, start a cluster, and return when pods can be scheduled.
A cluster that runs already in the same folder is taken down first.
Each flag can also be set by an environment variable: --device-plugins by KUBEDEVICE_CLUSTER_DEVICE_PLUGINS, and so on.`,
		Args:    cobra.NoArgs,
		PreRunE: func(command *cobra.Command, _ []string) error { return fromEnvironment(command.Flags()) },
		RunE:    func(command *cobra.Command, _ []string) error { return up(command.Context(), flags) },
	}
	f := command.Flags()
	addDir(f, &flags.dir)
	f.IntVar(&flags.nodes, "nodes", 2, "number of nodes")
	f.StringVar(&flags.scheduler, "scheduler", "", "scheduler program, or \""+upstream+"\" for Kubernetes' own (default _output/bin/kube-scheduler)")
	f.StringVar(&flags.schedulerPlugins, "scheduler-plugins", "", "folder of device scheduler plugins (default _output/plugins/scheduler)")
	f.StringVar(&flags.kubecri, "kubecri", "", "CRI proxy program, or \""+none+"\" to do without (default _output/bin/kubecri)")
	f.StringVar(&flags.devicePlugins, "device-plugins", "", "folder of device plugins (default _output/plugins/device)")
	f.StringArrayVar(&flags.inventories, "inventory", nil, "file with a node's simulated GPUs: the first for the first node and so on, the last for all further nodes")
	f.StringArrayVar(&flags.manifests, "manifests", nil, "file or folder of manifests to apply at the start; may be repeated")
	return command
}

func addDir(f *pflag.FlagSet, dir *string) {
	f.StringVar(dir, "dir", "", "the cluster's folder; clusters with different folders don't meet (default _output/cluster)")
}

// fromEnvironment sets each flag that the command line doesn't from its environment variable.
func fromEnvironment(flags *pflag.FlagSet) error {
	var err error
	flags.VisitAll(func(flag *pflag.Flag) {
		name := "KUBEDEVICE_CLUSTER_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		value, set := os.LookupEnv(name)
		if err != nil || flag.Changed || !set {
			return
		}
		if err = flags.Set(flag.Name, value); err != nil {
			err = fmt.Errorf("environment variable %s: %w", name, err)
		}
	})
	return err
}

func (f upFlags) options() (cluster.Options, error) {
	options, err := cluster.Default(f.nodes)
	if err != nil {
		return options, err
	}
	if options.Dir, err = absolute(f.dir, options.Dir); err != nil {
		return options, err
	}
	if f.scheduler == upstream {
		options.Scheduler = cluster.Program{}
	} else {
		if options.Scheduler.Path, err = absolute(f.scheduler, options.Scheduler.Path); err != nil {
			return options, err
		}
		if f.schedulerPlugins != "" {
			plugins, err := filepath.Abs(f.schedulerPlugins)
			if err != nil {
				return options, err
			}
			options.Scheduler.Args = []string{"--devschedpath=" + plugins}
		}
	}
	for i := range options.Nodes {
		if err := f.node(i, &options.Nodes[i]); err != nil {
			return options, err
		}
	}
	for _, manifest := range f.manifests {
		path, err := filepath.Abs(manifest)
		if err != nil {
			return options, err
		}
		options.Manifests = append(options.Manifests, path)
	}
	return options, nil
}

func (f upFlags) node(index int, node *cluster.NodeOptions) (err error) {
	if f.kubecri == none {
		node.Kubecri = nil
	} else {
		if node.Kubecri.Path, err = absolute(f.kubecri, node.Kubecri.Path); err != nil {
			return err
		}
		if f.devicePlugins != "" {
			plugins, err := filepath.Abs(f.devicePlugins)
			if err != nil {
				return err
			}
			node.Kubecri.Args = []string{"--cridevices=" + plugins}
		}
	}
	if len(f.inventories) > 0 {
		node.Inventory, err = filepath.Abs(f.inventories[min(index, len(f.inventories)-1)])
	}
	return err
}

// absolute returns path, or the default if it is empty, as an absolute path.
func absolute(path, otherwise string) (string, error) {
	if path == "" {
		return otherwise, nil
	}
	return filepath.Abs(path)
}

func up(ctx context.Context, flags upFlags) error {
	options, err := flags.options()
	if err != nil {
		return err
	}
	if err := build(ctx, options.Programs); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	began := time.Now()
	if _, err := cluster.Start(ctx, options); err != nil {
		return err
	}
	fmt.Printf("%d nodes are ready after %.1f s; the logs are in %s; to use the cluster:\n  export KUBECONFIG=%s\n  %s get nodes\n",
		len(options.Nodes), time.Since(began).Seconds(), filepath.Join(options.Dir, "logs"),
		filepath.Join(options.Dir, "kubeconfig"), filepath.Join(options.Programs, "kubectl"))
	return nil
}

func newBuildCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "build",
		Short: "Build the programs that clusters run, as far as they are missing or out of date",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			options, err := cluster.Default(0)
			if err != nil {
				return err
			}
			return build(command.Context(), options.Programs)
		},
	}
}

func build(ctx context.Context, programs string) error {
	root, err := checkout.Root()
	if err != nil {
		return err
	}
	return binaries.Build(ctx, filepath.Join(root, "test"), programs, os.Stdout)
}
