// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/kubectl/columns"
	"github.com/kubedevice/kubedevice/pkg/kubectl/devices"
)

// nodesTable prints nodes as a table: a line for each device, or a tree on a terminal.
type nodesTable struct {
	env  *environment
	tree bool
	wide bool
	*columns.Writer
}

func newNodesTable(env *environment, output *output) *nodesTable {
	t := &nodesTable{env: env, tree: env.terminal.Tree, wide: output.format == wide}
	header := []string{"NODE", "DEVICE", "GROUP", "MODEL"}
	if t.tree {
		header = []string{"NAME"} // the model is after the node's name
	}
	header = append(header, "MEMORY", "USE", "HEALTH")
	if t.wide {
		header = append(header, "TAINTS", "RESOURCES", "ATTRIBUTES")
	}
	t.Writer = output.writer(env, append(header, "HOLDERS")...)
	return t
}

// write writes nodes, and warnings about them to standard error.
func (t *nodesTable) write(nodes []*devices.Node) error {
	if len(nodes) == 0 {
		_, err := fmt.Fprintln(t.env.ErrOut, noNodes)
		return err
	}
	var rows []columns.Row
	for _, node := range nodes {
		if t.tree {
			rows = append(rows, t.treeOf(node)...)
		} else {
			rows = append(rows, t.linesOf(node)...)
		}
	}
	if err := t.Write(rows); err != nil {
		return err
	}
	for _, node := range nodes {
		warn(t.env, node)
	}
	return nil
}

// linesOf returns a line for each device of a node.
func (t *nodesTable) linesOf(node *devices.Node) []columns.Row {
	var rows []columns.Row
	for _, d := range node.Devices {
		row := columns.Row{
			columns.Text(node.Name), columns.Text(deviceName(d.Kind, d.ID)), columns.Text(groupOf(d.Path)),
			columns.Text(d.Model),
		}
		row = append(row, t.cellsOf(d)...)
		if health := &row[6]; !node.TakesPods() {
			health.Text += "," + strings.TrimPrefix(node.Status(), "Ready,")
			health.Style = cmp.Or(health.Style, columns.Yellow)
		}
		rows = append(rows, append(row, columns.Text(strings.Join(holdersOf(d), ", "))))
	}
	if len(rows) > 0 {
		return rows
	}
	none := columns.Text("")
	row := columns.Row{columns.Text(node.Name), none, none, none, none, none, none, none}
	if len(node.Problems) > 0 {
		row[6] = columns.Cell{Text: "Unreadable", Style: columns.Red}
	}
	if t.wide {
		row = append(row, none, none, none)
	}
	return []columns.Row{row}
}

// cellsOf returns the cells of a device from its memory on, without its holders.
func (t *nodesTable) cellsOf(d *devices.Device) []columns.Cell {
	memory := ""
	if r, ok := d.Quantity("memory"); ok && r.Capacity > 0 {
		memory = grouptree.Human(r.Capacity)
	}
	use, health := columns.Text(strings.ToLower(string(d.Use))), columns.Text(string(d.Health))
	switch {
	case d.Use == devices.Free && d.Health != devices.Healthy:
		use = columns.Text("") // no pod can have it
	case d.Use == devices.Free && len(d.Taints) == 0:
		use.Style = columns.Green
	case d.Use == devices.Shared:
		use.Text += fmt.Sprintf(" %d%%", d.Percent())
		use.Style = columns.Yellow
	}
	if d.Health != devices.Healthy {
		if d.Reason != "" && d.Reason != string(d.Health) {
			health.Text += " (" + d.Reason + ")"
		}
		health.Style = columns.Red
	}
	switch {
	case d.Cordoned():
		health.Text += ",Cordoned"
	case len(d.Taints) > 0:
		health.Text += ",Tainted"
	}
	if d.Health == devices.Healthy && len(d.Taints) > 0 {
		health.Style = columns.Yellow
	}
	cells := []columns.Cell{columns.Text(memory), use, health}
	if t.wide {
		var taints []string
		for _, taint := range d.Taints {
			taints = append(taints, taint.String())
		}
		cells = append(cells, columns.Text(strings.Join(taints, ",")), columns.Text(usedOf(d.Resources)),
			columns.Text(attributesOf(d)))
	}
	return cells
}

// attributesOf returns the attributes of a device by name, without what the table has elsewhere.
func attributesOf(d *devices.Device) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
		if text := d.Attributes[name].String(); text != d.Model && text != d.ID {
			texts = append(texts, name+"="+text)
		}
	}
	return strings.Join(texts, ",")
}

// deviceName is how tables call a device.
func deviceName(kind, id string) string {
	if id == "" {
		return kind
	}
	return kind + "/" + id
}

// groupOf returns the path of the group that a device is in.
func groupOf(path string) string {
	segments := strings.Split(path, "/")
	return strings.Join(segments[:max(0, len(segments)-2)], "/")
}

// holdersOf returns a text for each holder of a device.
func holdersOf(d *devices.Device) []string {
	var texts []string
	for _, holder := range d.Holders {
		text := holder.Namespace + "/" + holder.Pod + "/" + holder.Container
		parts := map[string]int64{}
		for name, quantity := range holder.Resources {
			if r, _ := d.Quantity(name); r.Allocatable != quantity {
				parts[name] = quantity
			}
		}
		if len(parts) > 0 {
			text += " " + quantities(parts)
		}
		if holder.Enforcement == deviceinfo.Policed {
			text += " (policed)"
		}
		if holder.State == devices.Bound {
			text += " (bound)"
		}
		texts = append(texts, text)
	}
	outside := map[string]int64{}
	for _, r := range d.Resources {
		if r.Outside > 0 && !r.Mask() {
			outside[r.Name] = r.Outside
		}
	}
	if len(outside) > 0 {
		texts = append(texts, "outside of Kubernetes: "+quantities(outside))
	}
	return texts
}

// noNodes is printed when there is nothing to print.
const noNodes = "No nodes with devices found"

// warn prints what is wrong with a node. The others go on.
func warn(env *environment, node *devices.Node) {
	for _, problem := range node.Problems {
		fmt.Fprintf(env.ErrOut, "Warning: node %q: %s\n", node.Name, problem)
	}
}
