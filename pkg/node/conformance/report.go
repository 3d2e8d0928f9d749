// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
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
	// Known says that it does not, and that this is expected: see Accept.
	Known Status = "known"
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
	// Stack has the frames of the plugin, the innermost one first, when a check failed because the
	// plugin panicked, did not return or ended the process, and they are known.
	Stack []string `json:"stack,omitempty"`
	// Known says why the failure is expected.
	Known string `json:"known,omitempty"`
}

// Report is the results of all checks, in the order in which they ran.
type Report struct {
	Results []Result `json:"results"`
}

// Accept makes failures known: those of the checks that are keys, each with the reason why it is
// expected. It returns an error if there is no check of such a name.
func (r *Report) Accept(known map[string]string) error {
	for _, check := range slices.Sorted(maps.Keys(known)) {
		if !slices.ContainsFunc(r.Results, func(result Result) bool { return result.Check == check }) {
			return fmt.Errorf("no check is called %q", check)
		}
	}
	for i, result := range r.Results {
		if reason, expected := known[result.Check]; expected && result.Status == Failed {
			r.Results[i].Status, r.Results[i].Known = Known, reason
			r.Results[i].Fix, r.Results[i].Stack = "", nil
		}
	}
	return nil
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
		case Known:
			said = fmt.Sprintf("%s Not so: %s. Known: %s.", result.About, result.Reason, result.Known)
		case NotApplicable:
			said = result.Reason
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\n", result.Status, result.Check, oneLine(said))
		for _, frame := range result.Stack {
			fmt.Fprintf(table, "\t\t  at %s\n", oneLine(frame))
		}
	}
	var counts []string
	for _, status := range []Status{OK, Failed, Known, NotApplicable} {
		counts = append(counts, fmt.Sprintf("%d %s", r.Count(status), status))
	}
	fmt.Fprintln(table, strings.Join(counts, ", "))
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
