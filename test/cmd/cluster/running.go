// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/sandbox"
	"github.com/spf13/cobra"
)

// stopTimeout is how long taking a cluster down may take.
const stopTimeout = time.Minute

// directory returns the cluster's directory that --dir names.
func directory(dir string) (string, error) {
	options, err := cluster.Default(0)
	if err != nil {
		return "", err
	}
	return cmp.Or(dir, options.Dir), nil
}

func newDownCommand() *cobra.Command {
	var dir string
	command := &cobra.Command{
		Use:   "down",
		Short: "Take a cluster down, or what is left of one",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			path, err := directory(dir)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(command.Context(), stopTimeout)
			defer cancel()
			return cluster.Down(ctx, path)
		},
	}
	addDir(command.Flags(), &dir)
	return command
}

// newRunningCommand returns a command that works on a running cluster.
func newRunningCommand(use, short string, args cobra.PositionalArgs,
	run func(context.Context, *cluster.Cluster, []string) error) *cobra.Command {
	var dir string
	command := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  args,
		RunE: func(command *cobra.Command, args []string) error {
			path, err := directory(dir)
			if err != nil {
				return err
			}
			c, err := cluster.Attach(path)
			if err != nil {
				return err
			}
			return run(command.Context(), c, args)
		},
	}
	addDir(command.Flags(), &dir)
	return command
}

func newStatusCommand() *cobra.Command {
	return newRunningCommand("status", "Show the programs of a running cluster, their process ids and their logs",
		cobra.NoArgs,
		func(_ context.Context, c *cluster.Cluster, _ []string) error {
			table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "PROGRAM\tPID\tLOG")
			for _, component := range c.Components() {
				pid := "ended"
				if id := component.PID(); id != 0 {
					pid = fmt.Sprint(id)
				}
				fmt.Fprintf(table, "%s\t%s\t%s\n", component.Name, pid, component.LogPath)
			}
			return table.Flush()
		})
}

func newRestartCommand() *cobra.Command {
	return newRunningCommand("restart PROGRAM",
		"Kill (-9) a program of a running cluster, such as node-1/kubecri, and start it again", cobra.ExactArgs(1),
		func(ctx context.Context, c *cluster.Cluster, args []string) error {
			return c.Restart(ctx, args[0])
		})
}

func newExecCommand() *cobra.Command {
	return newRunningCommand("exec SANDBOX -- COMMAND [ARG...]",
		"Run a command in the namespaces of a node, such as node-1, or of the control-plane", cobra.MinimumNArgs(2),
		func(ctx context.Context, c *cluster.Cluster, args []string) error {
			in, err := c.Sandbox(args[0])
			if err != nil {
				return err
			}
			return in.Run(ctx, sandbox.Command{
				Path: "/usr/bin/env", Args: args[1:], Env: c.Environment(),
				Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
			})
		})
}
