// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/kubectl/cluster"
	"github.com/kubedevice/kubedevice/pkg/kubectl/devices"
)

// printNames prints names as kubectl -o name does, each in a line.
func printNames[T any](to io.Writer, prefix string, list []T, name func(T) string) error {
	for _, item := range list {
		if _, err := fmt.Fprintln(to, prefix+name(item)); err != nil {
			return err
		}
	}
	return nil
}

// completion completes the names of objects.
type completion = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective)

// completeNodes completes the names of nodes that have devices.
func completeNodes(env *environment) completion {
	return complete(env, func(command *cobra.Command, reader *cluster.Reader, _ string) ([]string, error) {
		nodes, err := reader.Nodes(command.Context(), cluster.Query{})
		var names []string
		for _, node := range nodes {
			if devices.MayHaveDevices(node) {
				names = append(names, node.Name)
			}
		}
		return names, err
	})
}

// completeAllNodes completes the name of one node, whether it has devices or not.
func completeAllNodes(env *environment) completion {
	all := complete(env, func(command *cobra.Command, reader *cluster.Reader, _ string) ([]string, error) {
		nodes, err := reader.Nodes(command.Context(), cluster.Query{})
		var names []string
		for _, node := range nodes {
			names = append(names, node.Name)
		}
		return names, err
	})
	return func(command *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return all(command, args, prefix)
	}
}

// completeDevices completes the name of a node, and behind a slash that of one of its devices: its
// own where no other device of the node has it, or else its path.
func completeDevices(env *environment) completion {
	return func(command *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		name, _, ofDevice := strings.Cut(begun, "/")
		if !ofDevice {
			names, _ := completeNodes(env)(command, nil, begun)
			return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		devices := complete(env, func(command *cobra.Command, reader *cluster.Reader, _ string) ([]string, error) {
			return namesOfDevices(command.Context(), reader, name)
		})
		return devices(command, args, begun)
	}
}

// namesOfDevices returns the names of a node's devices, each behind the node's.
func namesOfDevices(ctx context.Context, reader *cluster.Reader, node string) (names []string, err error) {
	nodes, err := reader.Nodes(ctx, cluster.Query{Names: []string{node}})
	for _, n := range nodes {
		list := devices.NewNode(n, nil, time.Time{}).Devices
		count := map[string]int{}
		for _, device := range list {
			count[device.ID]++
		}
		for _, device := range list {
			name := device.ID
			if name == "" || count[name] > 1 {
				name = device.Path
			}
			names = append(names, node+"/"+name)
		}
	}
	return names, err
}

// completePods completes the names of pods that have devices or wait for some.
func completePods(env *environment) completion {
	return complete(env, func(command *cobra.Command, reader *cluster.Reader, namespace string) ([]string, error) {
		pods, err := reader.Pods(command.Context(), cluster.Query{Namespace: namespace}, func(pod *corev1.Pod) bool {
			return devices.NewPod(pod) != nil
		})
		var names []string
		for _, pod := range pods {
			names = append(names, pod.Name)
		}
		return names, err
	})
}

// complete returns what completes an argument by the names that are not arguments already.
func complete(
	env *environment, list func(*cobra.Command, *cluster.Reader, string) ([]string, error),
) completion {
	return func(command *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		reader, namespace, err := env.reader()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names, err := list(command, reader, namespace)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return unused(names, args, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// unused returns the names that begin with a prefix and are not among args.
func unused(names, args []string, prefix string) []cobra.Completion {
	var left []cobra.Completion
	for _, name := range names {
		if strings.HasPrefix(name, prefix) && !slices.Contains(args, name) {
			left = append(left, name)
		}
	}
	return left
}
