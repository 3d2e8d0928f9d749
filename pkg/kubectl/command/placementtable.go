// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/kubectl/columns"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

// printWhy prints why a pod waits.
func (o *placementOptions) printWhy(why *schedulerapi.Why) error {
	out := o.env.Out
	if why.Node != "" && why.Problem != "" {
		_, err := fmt.Fprintf(out, "%s is bound to node %s, which refuses it: %s.\n", why.Pod, why.Node,
			strings.TrimSuffix(columns.Text(why.Problem).Text, "."))
		return err
	}
	if why.Node != "" {
		_, err := fmt.Fprintf(out, "%s is bound to node %s.\n", why.Pod, why.Node)
		return err
	}
	fits := fmt.Sprintf("%s fits %d of %d nodes", why.Pod, len(why.Fits), why.Nodes)
	if len(why.Fits) > 0 {
		fits += ": " + strings.Join(why.Fits, ", ")
	}
	if why.Problem != "" {
		fits += ": " + why.Problem
	}
	if _, err := fmt.Fprintln(out, columns.Text(fits).Text+"."); err != nil {
		return err
	}
	if len(why.Reasons) > 0 {
		w := o.output.writer(o.env, "NODES", "NAMES", "REASON")
		var rows []columns.Row
		for _, reason := range why.Reasons {
			rows = append(rows, columns.Row{
				columns.Text(strconv.Itoa(len(reason.Nodes))), columns.Text(o.some(reason.Nodes)),
				columns.Text(reason.Text),
			})
		}
		if err := w.Write(rows); err != nil {
			return err
		}
	}
	if err := o.printSmallest(why.Smallest); err != nil {
		return err
	}
	return o.printMistakes(why.Mistakes)
}

// printMistakes prints the mistakes in a pod's annotations.
func (o *placementOptions) printMistakes(mistakes []string) error {
	if len(mistakes) == 0 {
		return nil
	}
	var text strings.Builder
	text.WriteString("\nThe pod's annotations have mistakes:\n")
	for _, mistake := range mistakes {
		fmt.Fprintf(&text, "- %s\n", columns.Text(mistake).Text)
	}
	_, err := fmt.Fprint(o.env.Out, text.String())
	return err
}

// some returns names, a few of many unless all are wanted.
func (o *placementOptions) some(names []string) string {
	const few = 3
	if len(names) <= few+1 || o.output.format == wide {
		return strings.Join(names, ",")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ","), len(names)-few)
}

// printSmallest prints the changes by which a pod fits.
func (o *placementOptions) printSmallest(smallest *schedulerapi.Smallest) error {
	if smallest == nil {
		return nil
	}
	type change struct{ what, nodes string }
	var changes []change
	relaxed := func(topology bool) {
		for _, relax := range smallest.Relax {
			if relax.Topology == topology {
				changes = append(changes, change{relax.Text, o.some(relax.Nodes)})
			}
		}
	}
	relaxed(true) // before a pod is ended
	if end := smallest.End; end != nil {
		var pods []string
		for _, pod := range end.Pods {
			pods = append(pods, fmt.Sprintf("%s (priority %d)", pod.PodName, pod.Priority))
		}
		changes = append(changes, change{"end " + strings.Join(pods, ", "), end.Placement.Node})
	}
	if add := smallest.Add; add != nil {
		changes = append(changes, change{"one more node like " + add.Like, "the new one"})
	}
	relaxed(false)
	var text strings.Builder
	switch {
	case len(changes) > 0:
		text.WriteString("\nIt would fit with any one of these changes:\n")
	case smallest.Complete:
		text.WriteString("\nNo pods to end, no node more and no constraint less would be enough.\n")
	default:
		text.WriteString("\nNo change was found by which it would fit.\n")
	}
	if _, err := fmt.Fprint(o.env.Out, text.String()); err != nil {
		return err
	}
	var rows []columns.Row
	for _, c := range changes {
		rows = append(rows, columns.Row{columns.Text(c.what), columns.Text(c.nodes)})
	}
	if len(rows) > 0 {
		if err := o.output.writer(o.env, "CHANGE", "GOES TO").Write(rows); err != nil {
			return err
		}
	}
	if !smallest.Complete {
		_, err := fmt.Fprintln(o.env.Out, "The time was over: this is the best that was found, not the smallest. "+
			"--within gives it more.")
		return err
	}
	return nil
}

// printPlacements prints where pods would go.
func (o *placementOptions) printPlacements(all *schedulerapi.Placements) error {
	header := []string{"POD", "NODE", "CONTAINER", "DEVICE", "HAS"}
	if o.output.format == wide {
		header = append(header, "EQUALLY GOOD")
	}
	w := o.output.writer(o.env, header...)
	var rows []columns.Row
	for _, pod := range all.Pods {
		add := func(container, device, has string) {
			row := columns.Row{
				columns.Text(pod.Pod.Name), columns.Text(pod.Node), columns.Text(container), columns.Text(device),
				columns.Text(has),
			}
			if o.output.format == wide {
				row = append(row, columns.Text(strings.Join(pod.EquallyGood, ",")))
			}
			rows = append(rows, row)
		}
		for _, container := range pod.Containers {
			for i, device := range container.Devices { // of one path they follow each other
				if i > 0 && container.Devices[i-1].Path == device.Path {
					continue
				}
				has := map[string]int64{}
				for _, same := range container.Devices[i:] {
					if same.Path == device.Path {
						has[same.Resource] = same.Quantity
					}
				}
				add(container.Name, device.Path, quantities(has))
			}
		}
		if len(pod.Containers) == 0 {
			add("", "", "")
		}
	}
	if len(rows) > 0 {
		if err := w.Write(rows); err != nil {
			return err
		}
	}
	var rest string
	switch {
	case all.Incomplete:
		rest = fmt.Sprintf("The time was over after %d of %d pods: --within gives it more.\n", all.Placed, all.Replicas)
	case !all.Fits:
		rest = fmt.Sprintf("%d of %d pods would be placed.\n", all.Placed, all.Replicas)
	}
	if _, err := fmt.Fprint(o.env.Out, rest); err != nil {
		return err
	}
	if all.Why != nil {
		if err := o.printWhy(all.Why); err != nil {
			return err
		}
	}
	return o.printMistakes(all.Mistakes)
}
