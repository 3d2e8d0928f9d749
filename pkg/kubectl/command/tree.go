// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/kubectl/columns"
	"github.com/kubedevice/kubedevice/pkg/kubectl/devices"
)

// branch is a node, a group or a device in a tree.
type branch struct {
	name     string
	device   *devices.Device // nil for a group without resources of its own
	branches []*branch
}

// treeOf returns the devices of a node as a tree of its groups.
func (t *nodesTable) treeOf(node *devices.Node) []columns.Row {
	root := &branch{}
	for _, d := range node.Devices {
		at := root
		for _, name := range segments(d) {
			at = at.child(name)
		}
		at.device = d
	}
	summary := columns.Cell{Text: freeOf(node), Style: columns.Bold}
	switch {
	case len(node.Devices) == 0 && len(node.Problems) > 0:
		summary = columns.Cell{Text: "unreadable", Style: columns.Red}
	case len(node.Devices) == 0:
		summary.Text = "no devices"
	}
	status := columns.Cell{}
	if !node.TakesPods() {
		status = columns.Cell{Text: node.Status(), Style: columns.Yellow}
	}
	row := columns.Row{{Text: node.Name, Style: columns.Bold}, {}, summary, status, {Text: modelsOf(node)}}
	if t.wide {
		row = slices.Insert(row, 4, columns.Cell{}, columns.Cell{})
	}
	rows := []columns.Row{row}
	if root.device != nil {
		rows = t.rowsOf(rows[:0], columns.Cell{Text: node.Name, Style: columns.Bold}, "", root)
	}
	return t.appendBranches(rows, "", root)
}

// freeOf says how many devices of a node are free of those that are healthy, and how many are not
// because of their taints alone. Of a node that takes no pods, its status says why none is free.
func freeOf(node *devices.Node) string {
	var of devices.Usage
	for _, usage := range devices.NewUsage([]*devices.Node{node}).Items {
		of.Free += usage.Free
		of.Cordoned += usage.Cordoned
		of.Tainted += usage.Tainted
		of.Devices += usage.Devices - usage.Unhealthy
	}
	text := fmt.Sprintf("%d of %d free", of.Free, of.Devices)
	if of.Cordoned > 0 && node.TakesPods() {
		text += fmt.Sprintf(", %d cordoned", of.Cordoned)
	}
	if of.Tainted > 0 {
		text += fmt.Sprintf(", %d tainted", of.Tainted)
	}
	return text
}

// modelsOf returns the models of a node's devices.
func modelsOf(node *devices.Node) string {
	var models []string
	for _, d := range node.Devices {
		if d.Model != "" && !slices.Contains(models, d.Model) {
			models = append(models, d.Model)
		}
	}
	return strings.Join(models, ", ")
}

// segments returns the names of the branches that lead to a device: level and instance of each
// group, and the device as other tables call it.
func segments(d *devices.Device) []string {
	if d.Path == "" {
		return nil
	}
	var names []string
	group := strings.Split(groupOf(d.Path), "/")
	for i := 0; i+1 < len(group); i += 2 {
		names = append(names, group[i]+"/"+group[i+1])
	}
	return append(names, deviceName(d.Kind, d.ID))
}

// child returns the branch of a name, which is the last one or new: devices come in order.
func (b *branch) child(name string) *branch {
	if n := len(b.branches); n > 0 && b.branches[n-1].name == name {
		return b.branches[n-1]
	}
	child := &branch{name: name}
	b.branches = append(b.branches, child)
	return child
}

// appendBranches adds the rows of what is below a branch. lines is what stands in front of them.
func (t *nodesTable) appendBranches(rows []columns.Row, lines string, b *branch) []columns.Row {
	for i, child := range b.branches {
		corner, more := "├─ ", "│  "
		if i == len(b.branches)-1 {
			corner, more = "└─ ", "   "
		}
		name := columns.Cell{Lines: lines + corner, Text: child.name}
		rest := lines + more
		if len(child.branches) > 0 {
			rest += "│  "
		}
		if child.device == nil {
			name.Style = columns.Dim
			rows = append(rows, columns.Row{name, {}})
		} else {
			rows = t.rowsOf(rows, name, rest, child)
		}
		rows = t.appendBranches(rows, lines+more, child)
	}
	return rows
}

// rowsOf adds the rows of a device: one for each holder, and at least one.
func (t *nodesTable) rowsOf(rows []columns.Row, name columns.Cell, rest string, b *branch) []columns.Row {
	holders := holdersOf(b.device)
	if len(holders) == 0 {
		holders = []string{""}
	}
	cells := t.cellsOf(b.device)
	for i, holder := range holders {
		row := append(columns.Row{name}, cells...)
		if i > 0 {
			row = append(columns.Row{{Lines: rest}}, make([]columns.Cell, len(cells))...)
		}
		rows = append(rows, append(row, columns.Text(holder)))
	}
	return rows
}
