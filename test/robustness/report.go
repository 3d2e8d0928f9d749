// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
)

// Result is what became of some containers during whose creation something was killed again and
// again. The lists must be empty.
type Result struct {
	// Scenario says what was killed and when.
	Scenario string `json:"scenario"`
	// Creations are the containers that ran in the end, Kills how often something was killed, or
	// upgraded, before.
	Creations int `json:"creations"`
	Kills     int `json:"kills"`
	// CutOffStarts are containers that the runtime took back within two seconds, because the call
	// that started them was cut off; the kubelet then created others.
	CutOffStarts int `json:"cutOffStarts"`
	// BareContainers were created without devices while no kubecri was registered with NRI, and
	// ended by the next one; the kubelet then created others. There are none in ModeCRI.
	BareContainers int     `json:"bareContainers"`
	Seconds        float64 `json:"seconds"`
	// LostPods were not ready in the end.
	LostPods []string `json:"lostPods"`
	// SharedDevices were in two containers that ran at the same time.
	SharedDevices []string `json:"sharedDevices"`
	// WrongDevices are containers that had other devices than the scheduler chose, and pods with
	// another grant in the checkpoint.
	WrongDevices []string `json:"wrongDevices"`
	// EndedContainers had run, and ended or got another process, before their pods were deleted.
	EndedContainers []string `json:"endedContainers"`
	// OrphanedGrants were in the checkpoint a minute after their pods were gone.
	OrphanedGrants []string `json:"orphanedGrants"`
	// Failures are what kept the scenario from being played as it should.
	Failures []string `json:"failures"`
}

// violations returns all that must not be.
func (r *Result) violations() [][]string {
	return [][]string{r.LostPods, r.SharedDevices, r.WrongDevices, r.EndedContainers, r.OrphanedGrants, r.Failures}
}

// OK says whether there is nothing that must not be.
func (r *Result) OK() bool {
	for _, found := range r.violations() {
		if len(found) > 0 {
			return false
		}
	}
	return true
}

// show writes the results as people read them: a table, and what went wrong in words.
func show(out io.Writer, results []*Result) {
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table,
		"\nSCENARIO\tKILLS\tCREATIONS\tCUT-OFF STARTS\tBARE CONTAINERS\tLOST PODS\tSHARED DEVICES\tWRONG "+
			"DEVICES\tENDED CONTAINERS\tORPHANED GRANTS\tSECONDS")
	for _, r := range results {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.0f\n", r.Scenario, r.Kills,
			r.Creations, r.CutOffStarts, r.BareContainers,
			len(r.LostPods), len(r.SharedDevices), len(r.WrongDevices), len(r.EndedContainers),
			len(r.OrphanedGrants), r.Seconds)
	}
	table.Flush() //nolint:errcheck // a screen
	for _, r := range results {
		for _, found := range r.violations() {
			for _, what := range found {
				fmt.Fprintf(out, "%s: %s\n", r.Scenario, what)
			}
		}
	}
}

// save writes the results as JSON into a directory.
func save(directory string, results []*Result) error {
	content, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(directory, "robustness.json"), append(content, '\n'), 0o644)
}
