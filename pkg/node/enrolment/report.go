// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Outcome is how an enrolment or a leave ended.
type Outcome string

// The outcomes.
const (
	// Planned: nothing was to be changed, as --dry-run asks.
	Planned Outcome = "planned"
	// Done: the node is as it was to be.
	Done Outcome = "done"
	// Unchanged: it was so before.
	Unchanged Outcome = "unchanged"
	// Refused: nothing was changed, for the reason that is given.
	Refused Outcome = "refused"
	// Undone: a step failed, and everything is as it was before.
	Undone Outcome = "undone"
	// Stuck: the way back failed, too. Leave goes on with it.
	Stuck Outcome = "stuck"
)

// exitCodes are the exit statuses of the program; 1 is that of a wrong command line.
var exitCodes = map[Outcome]int{Planned: 0, Done: 0, Unchanged: 0, Refused: 2, Undone: 3, Stuck: 4}

// Report is what an enrolment or a leave found and did.
type Report struct {
	Node    string  `json:"node,omitempty"`
	Outcome Outcome `json:"outcome"`
	// Changed says whether anything is not as it was before.
	Changed bool `json:"changed"`
	// Reason is why it was refused, undone, or is stuck.
	Reason string `json:"reason,omitempty"`
	// Leaving says that an enrolment was refused because a leave has not come to its end.
	Leaving bool   `json:"leaving,omitempty"`
	Facts   []Fact `json:"facts,omitempty"`
	Steps   []Step `json:"steps,omitempty"`
}

// Step is a step of a plan, for people.
type Step struct {
	Name    string   `json:"name"`
	Actions []string `json:"actions"`
}

// ExitCode returns the exit status of a program that ends with this report.
func (r *Report) ExitCode() int { return exitCodes[r.Outcome] }

// WriteJSON writes the report as JSON.
func (r *Report) WriteJSON(out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(r)
}

// WriteText writes the report for people.
func (r *Report) WriteText(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	for _, f := range r.Facts {
		risk := ""
		if f.Risk != None {
			risk = strings.ToUpper(string(f.Risk))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", f.Name, risk, f.Finding)
		if f.Advice != "" {
			fmt.Fprintf(table, "\t\t-> %s\n", f.Advice)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for i, step := range r.Steps {
		fmt.Fprintf(out, "%d. %s\n", i+1, step.Name)
		for _, action := range step.Actions {
			fmt.Fprintf(out, "   - %s\n", action)
		}
	}
	_, err := fmt.Fprintln(out, r.line())
	return err
}

// line is the last line of the report.
func (r *Report) line() string {
	line := string(r.Outcome)
	if r.Node != "" {
		line = fmt.Sprintf("node %q: %s", r.Node, r.Outcome)
	}
	if r.Reason != "" {
		line += ": " + r.Reason
	}
	return line
}
