// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Status is how a check ended. Its text is printed, in JSON too: it never changes.
type Status string

const (
	// OK says that what the check says holds.
	OK Status = "ok"
	// Failed says that it does not.
	Failed Status = "FAILED"
	// NotApplicable says that the plugin has nothing for the check, or that another check failed
	// which this one needs.
	NotApplicable Status = "not applicable"
)

// Result is the result of one check.
type Result struct {
	// Plugin is the file, or the socket, as it was given.
	Plugin string `json:"plugin"`
	// Kind is what the plugin is: "device plugin", "scheduler plugin", "kubelet device plugin".
	Kind string `json:"kind"`
	// Check is the check's name, unique for a kind.
	Check string `json:"check"`
	// About is what holds for a plugin that passes, as a sentence.
	About string `json:"about"`
	// Status is how it ended.
	Status Status `json:"status"`
	// Reason says why a check failed or is not applicable.
	Reason string `json:"reason,omitempty"`
	// Fix says what to do about a check that failed.
	Fix string `json:"fix,omitempty"`
}

// Report is the results of all checks, in the order in which they ran.
type Report struct {
	Results []Result `json:"results"`
}

// Count returns how many checks ended with the status.
func (r *Report) Count(status Status) (n int) {
	for _, result := range r.Results {
		if result.Status == status {
			n++
		}
	}
	return n
}

// WriteText writes the report for people: a line for each check, below a line for each plugin.
func (r *Report) WriteText(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	last := ""
	for _, result := range r.Results {
		if title := result.Kind + " " + result.Plugin; title != last {
			fmt.Fprintln(table, title)
			last = title
		}
		said := result.About
		switch result.Status {
		case Failed:
			said = fmt.Sprintf("%s Not so: %s. To do: %s.", result.About, result.Reason, result.Fix)
		case NotApplicable:
			said = result.Reason
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\n", result.Status, result.Check, oneLine(said))
	}
	fmt.Fprintf(table, "%d ok, %d FAILED, %d not applicable\n", r.Count(OK), r.Count(Failed), r.Count(NotApplicable))
	return table.Flush()
}

// WriteJSON writes the report for programs.
func (r *Report) WriteJSON(out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(r)
}

// oneLine replaces what would break a line or a column, such as a plugin's own text.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
