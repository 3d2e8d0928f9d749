// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

// Check returns an error if a spec differs, or if none passed, in which case the comparison means
// nothing.
func (c *Comparison) Check() error {
	if differ := len(c.With(Differs)); differ > 0 {
		return fmt.Errorf("%s: %d specs differ between direct and through kubecri", c.Runtime, differ)
	}
	if len(c.With(Passed)) == 0 {
		return fmt.Errorf("%s: no spec passed on both sides, so that nothing is shown: see the table for why",
			c.Runtime)
	}
	return nil
}

// Write writes the table for people to <runtime>.txt and everything to <runtime>.json, in a
// directory.
func (c *Comparison) Write(dir string) error {
	content, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("write the comparison: %w", err)
	}
	var table bytes.Buffer
	if err := c.Print(&table); err != nil {
		return err
	}
	name := filepath.Join(dir, string(c.Runtime))
	return errors.Join(os.WriteFile(name+".json", append(content, '\n'), 0o644),
		os.WriteFile(name+".txt", table.Bytes(), 0o644))
}

// Print prints the two sides' results next to each other; why specs were skipped; what failed; and
// what differs.
func (c *Comparison) Print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "DIRECT\tKUBECRI\tSPEC (%s)\n", c.Runtime)
	for _, s := range c.Specs {
		fmt.Fprintf(table, "%s\t%s\t%s\n", states(s.Direct), states(s.Kubecri), s.Name)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	var text strings.Builder
	c.explain(&text, "Skipped on both sides", Skipped)
	c.explain(&text, "Failed on both sides, which says nothing of kubecri", Failed)
	c.explain(&text, fmt.Sprintf("Differed once, and passed on both sides in %d more runs by themselves", repeats),
		Unsteady)
	c.explain(&text, "DIFFERENT", Differs)
	fmt.Fprintf(&text,
		"\n%s: %d specs passed on both sides, %d failed on both, %d were skipped, %d unsteady, %d differ; %.0f s\n",
		c.Runtime,
		len(c.With(Passed)), len(c.With(Failed)), len(c.With(Skipped)), len(c.With(Unsteady)),
		len(c.With(Differs)), c.Seconds)
	_, err := io.WriteString(out, text.String())
	return err
}

// explain lists the specs with a verdict and what was said of them.
func (c *Comparison) explain(out *strings.Builder, title string, verdict Verdict) {
	specs := c.With(verdict)
	if len(specs) == 0 {
		return
	}
	fmt.Fprintf(out, "\n%s:\n", title)
	for _, s := range specs {
		fmt.Fprintf(out, "  %s\n", s.Name)
		if verdict == Skipped {
			fmt.Fprintf(out, "    %s\n", s.Direct[0].Message)
			continue
		}
		for i := range s.Direct {
			fmt.Fprintf(out, "    direct:  %s\n    kubecri: %s\n", said(s.Direct[i]), said(s.Kubecri[i]))
		}
	}
}

// said is a result in one line.
func said(r Result) string {
	message, _, _ := strings.Cut(strings.TrimSpace(r.Message), "\n")
	return strings.TrimSuffix(r.State+": "+cmp.Or(message, "-"), ": -")
}

func states(results []Result) string {
	var all []string
	for _, r := range results {
		all = append(all, r.State)
	}
	return strings.Join(all, ",")
}
