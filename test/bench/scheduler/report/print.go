// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// points are the extension points that the table has columns for; the JSON has all.
var points = []string{"PreFilter", "Filter", "Score", "Reserve", "PreBind", "Bind"}

// Print writes the tables and the verdicts.
func (r *Result) Print(to io.Writer) error {
	out := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(out, "%s; medians of %d rounds\n", r.Machine, r.Rounds)
	for _, size := range r.Sizes {
		fmt.Fprintf(out, "\n%v\tpods/s\tCPU ms/pod\town µs/pod\tRSS MiB\tno file MiB\theap MiB\t", &size)
		for _, point := range points {
			fmt.Fprintf(out, "%s ms\t", point)
		}
		fmt.Fprintln(out)
		for _, w := range size.Variants {
			fmt.Fprintf(out, "%s\t%.1f\t%.2f\t%.0f\t%.0f\t%.0f\t%.0f\t", w.Name, w.PodsPerSecond, w.CPUPerPod,
				w.OwnMicroseconds, w.Memory.Resident, w.Memory.Anonymous, w.Memory.Heap)
			for _, point := range points {
				fmt.Fprintf(out, "%.3f\t", w.Points[point])
			}
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "\n%v, paired\tmedian\tlower 95%%\tupper 95%%\t\n", &size)
		for _, q := range size.Ratios {
			fmt.Fprintf(out, "%v, %s\t%.3f\t", q.Comparison, q.Of, q.Median)
			if q.Verdict == open {
				fmt.Fprint(out, "-\t-\t\n")
			} else {
				fmt.Fprintf(out, "%.3f\t%.3f\t\n", q.Lower, q.Upper)
			}
		}
	}
	fmt.Fprintln(out)
	for _, size := range r.Sizes {
		for _, q := range size.Ratios {
			fmt.Fprintf(out, "%v: %v\n", &size, q)
		}
		for _, f := range size.Footprints {
			fmt.Fprintf(out, "%v: %v\n", &size, f)
		}
	}
	for _, g := range r.Growths {
		fmt.Fprintln(out, g)
	}
	return out.Flush()
}
