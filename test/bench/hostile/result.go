// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/kubedevice/kubedevice/test/hostile"
)

// bound is by how much a pod may cost more than an ordinary one, by part. Preemption asks one node
// again and again: for each pod that may go.
var bound = map[hostile.Part]time.Duration{
	hostile.Read: 5 * time.Millisecond, hostile.Fit: 5 * time.Millisecond, hostile.Reserve: 5 * time.Millisecond,
	hostile.Hint: time.Millisecond, hostile.Preempt: 50 * time.Millisecond,
}

// cycleBound is that for a cycle on all nodes.
const cycleBound = 100 * time.Millisecond

// result is what a run has found.
type result struct {
	Seed           uint64
	Nodes, Victims int
	Rows           []row
}

// row is the worst pod of one search. Times are in nanoseconds.
type row struct {
	Machine, Part          string
	Pods                   int // that were measured
	Ordinary, Worst, Bound time.Duration
	Upstream               time.Duration // what upstream's plugin for resources takes for the same pod, in a cycle
	Pod, Status            string
	Shape                  hostile.Shape
}

// exceeds reports whether the bound is exceeded.
func (r *row) exceeds() bool { return r.Worst-r.Ordinary > r.Bound }

// exceeded returns an error that names what exceeds its bound.
func (r *result) exceeded() error {
	var all []error
	for i := range r.Rows {
		if at := &r.Rows[i]; at.exceeds() {
			all = append(all, fmt.Errorf("%s, %s: %v is more than the ordinary %v and %v: %s", at.Machine, at.Part,
				at.Worst, at.Ordinary, at.Bound, at.Pod))
		}
	}
	return errors.Join(all...)
}

// print writes the table.
func (r *result) print(to io.Writer) error {
	fmt.Fprintf(to, "What pods cost at worst, in ms of CPU time, compared with an ordinary pod; seed %d.\n\n", r.Seed)
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "machine\tpart\tordinary\tworst\tmore\tbound\tholds\tupstream\tpods\tthe worst pod")
	for i := range r.Rows {
		at := &r.Rows[i]
		upstream := "-"
		if at.Upstream > 0 {
			upstream = ms(at.Upstream)
		}
		holds := "yes"
		if at.exceeds() {
			holds = "NO"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", at.Machine, at.Part, ms(at.Ordinary), ms(at.Worst),
			ms(max(0, at.Worst-at.Ordinary)), ms(at.Bound), holds, upstream, at.Pods, at.Pod)
	}
	return w.Flush()
}

// ms writes a time in milliseconds.
func ms(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond)) }

// writeJSON writes all numbers.
func (r *result) writeJSON(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
