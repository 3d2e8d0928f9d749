// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

// show prints a line for each attempt and mode with what came of it in each setting, then the
// surprises. The error says how many there are.
func show(out io.Writer, attempts []*Attempt, results []Result) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\nattempt\twho\tdefence\tmode\t%s\t%s\t%s\t%s\n",
		Both, SealsAlone, PoliciesAlone, Bare)
	surprises := map[string][]Result{}
	count := 0
	for _, attempt := range attempts {
		for _, mode := range attempt.Modes {
			cells := []string{attempt.ID, string(attempt.Who), string(attempt.Defence), string(mode)}
			for _, setting := range Settings() {
				cell := "-"
				for _, result := range results {
					if result.ID == attempt.ID && result.Mode == mode && result.Setting == setting {
						cell = string(result.Got.Outcome)
						if !result.OK() {
							cell = "SURPRISE"
							surprises[attempt.ID] = append(surprises[attempt.ID], result)
							count++
						}
					}
				}
				cells = append(cells, cell)
			}
			fmt.Fprintln(table, strings.Join(cells, "\t"))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, attempt := range attempts {
		for _, result := range surprises[attempt.ID] {
			fmt.Fprintf(out, "SURPRISE %s, %s, %s: %s %s\n  want: %s %q\n  got: %s %q %s\n",
				attempt.ID, result.Mode, result.Setting, attempt.Who, attempt.What, result.Want.Outcome,
				result.Want.Words, result.Got.Outcome, result.Got.Words, result.Problem)
		}
	}
	if count > 0 {
		return fmt.Errorf("%d surprises", count)
	}
	return nil
}

// save writes the results as JSON, and the table as Markdown.
func save(dir string, attempts []*Attempt, results []Result) error {
	content, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "results.json"), content, 0o644),
		os.WriteFile(filepath.Join(dir, "attacks.md"), []byte(Markdown(attempts)), 0o644))
}
