// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/kubectl/columns"
	"github.com/kubedevice/kubedevice/pkg/kubectl/devices"
)

// podsTable prints pods as a table: a line for each device of each container.
type podsTable struct {
	*columns.Writer
	namespaces, wide, terminal bool
	now                        func() time.Time
}

// newPodsTable returns a table with a column for the namespace, or without.
func newPodsTable(env *environment, output *output, namespaces bool) *podsTable {
	header := []string{"POD", "CONTAINER", "NODE", "DEVICE", "HAS", "STATE", "SINCE"}
	if namespaces {
		header = append([]string{"NAMESPACE"}, header...)
	}
	if output.format == wide {
		header = append(header, "GROUP")
	}
	return &podsTable{
		Writer: output.writer(env, append(header, "REASON")...), namespaces: namespaces,
		wide: output.format == wide, terminal: env.terminal.Tree, now: env.now,
	}
}

// line is what differs from line to line of a pod.
type line struct {
	container, device, has, group string
	state                         devices.State
}

func (t *podsTable) write(pods []*devices.Pod) error {
	var rows []columns.Row
	for _, pod := range pods {
		for i, l := range linesOf(pod) {
			rows = append(rows, t.row(pod, l, i == 0))
		}
	}
	return t.Write(rows)
}

// linesOf returns the lines of a pod, at least one.
func linesOf(pod *devices.Pod) []line {
	var lines []line
	for _, c := range pod.Containers {
		for _, part := range c.Devices {
			lines = append(lines, line{
				c.Name, deviceName(part.Kind, part.ID), quantities(part.Resources), groupOf(part.Path), c.State,
			})
		}
		if len(c.Devices) == 0 {
			lines = append(lines, line{container: c.Name, has: requested(c.Requests), state: c.State})
		}
	}
	if len(lines) == 0 {
		lines = append(lines, line{state: pod.State})
	}
	return lines
}

// requested says what a container without devices requests.
func requested(requests map[string]int64) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		texts = append(texts, grouptree.Human(requests[name])+" "+name)
	}
	return "requests " + strings.Join(texts, ", ")
}

// row returns one line. What all lines of a pod have in common is on the first line alone where a
// person reads it.
func (t *podsTable) row(pod *devices.Pod, l line, first bool) columns.Row {
	row := columns.Row{columns.Text(pod.Name), columns.Text(l.container), columns.Text(pod.Node)}
	if t.namespaces {
		row = append(columns.Row{columns.Text(pod.Namespace)}, row...)
	}
	if t.terminal && !first {
		for i := range row {
			if t.namespaces && i == 2 || !t.namespaces && i == 1 {
				continue // the container
			}
			row[i] = columns.Cell{}
		}
	}
	state := columns.Cell{Text: string(l.state), Style: colorOf(l.state)}
	since := "<unknown>"
	if !pod.Since.IsZero() {
		since = duration.HumanDuration(t.now().Sub(pod.Since.Time))
	}
	row = append(row, columns.Text(l.device), columns.Text(l.has), state, columns.Text(since))
	if t.wide {
		row = append(row, columns.Text(l.group))
	}
	reason := pod.Reason()
	if t.wide {
		reason = pod.Message
	}
	if t.terminal && (reason == "" || !first) {
		return append(row, columns.Cell{})
	}
	return append(row, columns.Text(reason))
}
