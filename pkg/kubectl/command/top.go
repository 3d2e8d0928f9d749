// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/kubectl/cluster"
	"github.com/kubedevice/kubedevice/pkg/kubectl/columns"
	"github.com/kubedevice/kubedevice/pkg/kubectl/devices"
)

// topOptions are the arguments of kubectl device top.
type topOptions struct {
	selection
	env      *environment
	measured bool // the real use of a device is known
}

func topCommand(env *environment) *cobra.Command {
	o := &topOptions{env: env}
	command := &cobra.Command{
		Use:   "top [NODE...]",
		Short: "Show how much of each kind of device is in use, and the largest group that is free",
		Long: `Show for each node and each kind of device how many are free, shared, and whole for one pod. USE is
the part that pods hold. The largest group of free devices shows how fragmented a node is.

Each device counts once. No new pod gets a cordoned device: an administrator cordoned it or its node,
or the node is not ready. Only pods that tolerate its taints get a tainted one. Neither is free.

MEMORY USED is the memory that programs really use, some minutes old at most.

The lines of all nodes together come last. Their largest free group is that of a single node.`,
		Example: `  # The use of all devices
  kubectl device top

  # With the most free devices in one group, by level of groups
  kubectl device top -o wide

  # The nodes on which two free devices are in one group at the level gpugrp0
  kubectl device top -o json | jq -r '.items[]
    | select(any(.mostFreeByLevel[]?; .level == "gpugrp0" and .free >= 2)) | .node'`,
		ValidArgsFunction: completeNodes(env),
		RunE: func(command *cobra.Command, names []string) error {
			if err := o.take(command, names); err != nil {
				return err
			}
			return o.run(command.Context())
		},
	}
	o.addFlags(command, asJSON, asYAML, wide)
	return command
}

func (o *topOptions) run(ctx context.Context) error {
	reader, _, err := o.env.reader()
	if err != nil {
		return err
	}
	nodes, missing := readNodes(ctx, reader, cluster.Query{Names: o.names, Labels: o.selector}, o.env.now())
	if nodes == nil && missing != nil {
		return missing
	}
	return errors.Join(o.write(nodes), missing)
}

// write writes the usage of nodes, and warnings about them to standard error.
func (o *topOptions) write(nodes []*devices.Node) (err error) {
	usage := devices.NewUsage(nodes)
	if o.output.table() {
		err = o.print(usage)
	} else {
		err = printObject(o.env.Out, o.output.format, usage)
	}
	for _, node := range nodes {
		warn(o.env, node)
	}
	return err
}

// print prints the usage as a table.
func (o *topOptions) print(usage *devices.UsageList) error {
	if len(usage.Items) == 0 {
		_, err := fmt.Fprintln(o.env.ErrOut, noNodes)
		return err
	}
	header := []string{
		"NODE", "KIND", "DEVICES", "FREE", "SHARED", "WHOLE", "CORDONED", "TAINTED", "UNHEALTHY", "USE",
		"LARGEST FREE GROUP",
	}
	o.measured = slices.ContainsFunc(usage.Totals, func(u *devices.Usage) bool { return u.Measured != nil })
	if o.measured {
		header = slices.Insert(header, slices.Index(header, "USE")+1, "MEMORY USED")
	}
	if o.output.format == wide {
		header = append(header, "MOST FREE IN ONE GROUP", "RESOURCES")
	}
	var rows []columns.Row
	for _, u := range usage.Items {
		rows = append(rows, o.row(columns.Text(u.Node), u))
	}
	for _, u := range usage.Totals {
		rows = append(rows, o.row(columns.Cell{Text: "<all>", Style: columns.Bold}, u))
	}
	return o.output.writer(o.env, header...).Write(rows)
}

func (o *topOptions) row(node columns.Cell, u *devices.Usage) columns.Row {
	row := columns.Row{node, columns.Text(u.Kind)}
	for _, count := range []struct {
		n     int
		style columns.Style
	}{
		{u.Devices, columns.Plain}, {u.Free, columns.Green}, {u.Shared, columns.Plain}, {u.Whole, columns.Plain},
		{u.Cordoned, columns.Yellow}, {u.Tainted, columns.Yellow}, {u.Unhealthy, columns.Red},
	} {
		cell := columns.Text(strconv.Itoa(count.n))
		if count.n > 0 {
			cell.Style = count.style
		}
		row = append(row, cell)
	}
	row = append(row, columns.Text(fmt.Sprintf("%d%%", u.Percent())))
	if o.measured {
		row = append(row, columns.Text(measuredOf(u.Measured)))
	}
	largest := ""
	if u.LargestFree != nil {
		largest = fmt.Sprintf("%d in %s", u.LargestFree.Free, groupName(u, *u.LargestFree))
	}
	row = append(row, columns.Text(largest))
	if o.output.format != wide {
		return row
	}
	var levels []string
	for _, level := range u.MostFree {
		levels = append(levels, fmt.Sprintf("%d of %d in %s", level.Free, level.Devices, groupName(u, level.Group)))
	}
	return append(row, columns.Text(strings.Join(levels, ", ")), columns.Text(usedOf(u.Resources)))
}

// measuredOf returns how much of the memory is really used.
func measuredOf(m *devices.Measured) string {
	if m == nil {
		return "<unknown>"
	}
	return grouptree.Human(m.MemoryUsed) + "/" + grouptree.Human(m.MemoryTotal)
}

// groupName names a group: a part of the node that the usage is of, or of a node that it names.
func groupName(u *devices.Usage, group devices.Group) string {
	switch {
	case group.Path == "":
		return "node " + group.Node
	case u.Node == "":
		return group.Path + " of node " + group.Node
	default:
		return group.Path
	}
}
