// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// print writes the result for people.
func (r *result) print(to io.Writer) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\tp50\tp99\tCPU a call\tpeak memory")
	for _, w := range r.Workloads {
		fmt.Fprintf(table, "%s\t\t\t\t\n", w.Name)
		for _, variant := range variants {
			c, measured := w.Variants[variant]
			if !measured {
				continue
			}
			format, cpu := "%+.3f ms", fmt.Sprintf("%.3f ms", c.CPU/1000)
			if variant == direct {
				format, cpu = "%.3f ms", "-"
			}
			fmt.Fprintf(table, "  %s\t"+format+"\t"+format+"\t%s\t%.0f MiB\n", variant, c.P50/1000, c.P99/1000, cpu,
				float64(c.Peak)/(1<<20))
		}
	}
	grant := func(name string, took float64) { fmt.Fprintf(table, "%s\t%.3f ms\t\t\t\n", name, took/1000) }
	fmt.Fprintln(table, "Replace a file\t\t\t\t")
	grant("  grant a device", r.GrantWrite.Pin)
	grant("  write, fsync, rename, fsync directory", r.GrantWrite.Bare)
	grant("  write, fsync, rename", r.GrantWrite.BareFile)
	if err := table.Flush(); err != nil {
		return err
	}
	if _, err := fmt.Fprint(to,
		"\nTimes with a sign are added to direct. Peak memory of direct is the runtime's own.\n\n"); err != nil {
		return err
	}
	for _, g := range r.Goals {
		if _, err := fmt.Fprintln(to, g); err != nil {
			return err
		}
	}
	for _, c := range r.Against {
		if _, err := fmt.Fprintln(to, c); err != nil {
			return err
		}
	}
	return nil
}
