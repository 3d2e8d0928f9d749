// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubectl/cluster"
	"github.com/kubedevice/kubedevice/pkg/kubectl/devices"
)

// nodesOptions are the arguments of kubectl device nodes.
type nodesOptions struct {
	selection
	env   *environment
	watch bool
}

func nodesCommand(env *environment) *cobra.Command {
	o := &nodesOptions{env: env}
	command := &cobra.Command{
		Use:     "nodes [NODE...]",
		Aliases: []string{"node", "no"},
		Short:   "Show the devices of nodes and who holds them",
		Long: `Show the devices of nodes: their topology, model, memory and health, and which containers hold
them, or which part of them.

On a terminal the devices of a node are a tree of its groups. Elsewhere each device is a line. The
command leaves out nodes without devices unless you name them.`,
		Example: `  # The devices of all nodes
  kubectl device nodes

  # The devices of one node, with how much of each resource is in use
  kubectl device nodes gpu-7 -o wide

  # The devices of the nodes with a label, and each change from now on
  kubectl device nodes -l pool=training --watch

  # The devices that are unhealthy
  kubectl device nodes -o json | jq -r '.items[] | .name as $n | .devices[]
    | select(.health == "Unhealthy") | "\($n) \(.path)"'`,
		ValidArgsFunction: completeNodes(env),
		RunE: func(command *cobra.Command, names []string) error {
			if err := o.take(command, names); err != nil {
				return err
			}
			return o.run(command.Context())
		},
	}
	o.addFlags(command, asJSON, asYAML, asNames, wide)
	command.Flags().BoolVarP(&o.watch, "watch", "w", false, "After listing the nodes, watch for changes.")
	return command
}

func (o *nodesOptions) run(ctx context.Context) error {
	reader, _, err := o.env.reader()
	if err != nil {
		return err
	}
	query := cluster.Query{Names: o.names, Labels: o.selector}
	if o.watch {
		return o.watchNodes(ctx, reader, query)
	}
	list, missing := readNodes(ctx, reader, query, o.env.now())
	if list == nil && missing != nil {
		return missing
	}
	single := len(o.names) == 1 && len(list) == 1
	return errors.Join(o.print(list, single), missing)
}

func (o *nodesOptions) watchNodes(ctx context.Context, reader *cluster.Reader, query cluster.Query) error {
	table := newNodesTable(o.env, &o.output)
	w := &nodesWatch{
		named:   len(o.names) > 0,
		printed: map[string]*devices.Node{},
		print: func(nodes []*devices.Node) error {
			if o.output.table() {
				return table.write(nodes)
			}
			return eachAlone(nodes, func(one []*devices.Node) error { return o.print(one, true) })
		},
	}
	return reader.Watch(ctx, &query, &cluster.Query{Fields: notFinished.String()}, w.changed, nil)
}

// print prints nodes, or the single one that was named.
func (o *nodesOptions) print(list []*devices.Node, single bool) error {
	switch {
	case o.output.table():
		return newNodesTable(o.env, &o.output).write(list)
	case o.output.format == asNames:
		return printNames(o.env.Out, "node/", list, func(n *devices.Node) string { return n.Name })
	case single:
		return printObject(o.env.Out, o.output.format, list[0])
	default:
		return printObject(o.env.Out, o.output.format, devices.NewNodeList(list))
	}
}

// readNodes returns the nodes that are meant, with their devices: those that are named, or those of
// all that have devices. With an error for nodes that are missing it returns the others.
func readNodes(
	ctx context.Context, reader *cluster.Reader, query cluster.Query, now time.Time,
) ([]*devices.Node, error) {
	nodes, missing := reader.Nodes(ctx, query)
	if len(nodes) == 0 {
		return nil, missing
	}
	if len(query.Names) == 0 {
		if missing != nil { // the list is not complete
			return nil, missing
		}
		nodes = slices.DeleteFunc(nodes, func(node *corev1.Node) bool { return !devices.MayHaveDevices(node) })
	}
	pods, err := podsOn(ctx, reader, nodes, len(query.Names) > 0)
	if err != nil {
		return nil, errors.Join(err, missing)
	}
	list := make([]*devices.Node, len(nodes))
	for i, node := range nodes {
		list[i] = devices.NewNode(node, pods[node.Name], now)
	}
	return list, missing
}

// podsOn returns the pods on the nodes that may hold devices, by node. few says that the nodes were
// named, so that the pods are read for each node.
func podsOn(
	ctx context.Context, reader *cluster.Reader, nodes []*corev1.Node, few bool,
) (map[string][]*corev1.Pod, error) {
	reporting := map[string]bool{}
	for _, node := range nodes {
		reporting[node.Name] = node.Annotations[deviceinfo.HoldersAnnotation] != ""
	}
	// A node may report a pod whose annotation says nothing.
	mayHold := func(pod *corev1.Pod) bool {
		return pod.Annotations[deviceinfo.Annotation] != "" || reporting[pod.Spec.NodeName]
	}
	podsByNode := map[string][]*corev1.Pod{}
	if !few {
		pods, err := reader.Pods(ctx, cluster.Query{Fields: notFinished.String()}, mayHold)
		for _, pod := range pods {
			podsByNode[pod.Spec.NodeName] = append(podsByNode[pod.Spec.NodeName], pod)
		}
		return podsByNode, err
	}
	for _, node := range nodes {
		onNode := fields.AndSelectors(notFinished, fields.OneTermEqualSelector("spec.nodeName", node.Name))
		pods, err := reader.Pods(ctx, cluster.Query{Fields: onNode.String()}, mayHold)
		if err != nil {
			return nil, err
		}
		podsByNode[node.Name] = pods
	}
	return podsByNode, nil
}

// notFinished selects the pods that may hold devices: bound ones that have not ended.
var notFinished = fields.AndSelectors(
	fields.OneTermNotEqualSelector("spec.nodeName", ""),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
)
