// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"text/tabwriter"
)

// kubecri is the program that is measured.
const kubecri = "kubecri"

// The goals for kubecri on a node on which nothing changes.
const (
	cpuGoal = 0.3      // percent of a core
	rssGoal = 60 << 20 // bytes
)

// result is what a run found.
type result struct {
	Machine      string        `json:"machine"`
	Seconds      float64       `json:"seconds"` // of each measurement
	Measurements []measurement `json:"measurements"`
	Goals        []goal        `json:"goals"`
}

// measurement is what the node's programs cost with one number of pods.
type measurement struct {
	Pods     int                `json:"pods"`
	Programs map[string]program `json:"programs"`
	// CallsPerSecond are the kubelet's calls through kubecri, by method.
	CallsPerSecond map[string]float64 `json:"callsPerSecond"`
	// Writes are the writes to the API server, by client.
	Writes map[string]int `json:"writes"`
}

// program is what one program costs. Memory is the most that was seen, in bytes.
type program struct {
	CPUPercent float64 `json:"cpuPercent"` // of a core
	RSS        int64   `json:"rss"`
	Anonymous  int64   `json:"anonymous"` // the part of RSS that no file backs
}

// goal is a bound that the project set itself.
type goal struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Bound float64 `json:"bound"`
	Holds bool    `json:"holds"`
}

func goalsOf(r *result) []goal {
	var goals []goal
	for _, m := range r.Measurements {
		atMost := func(name string, value, bound float64) {
			goals = append(goals, goal{fmt.Sprintf("%d pods: %s", m.Pods, name), value, bound, value <= bound})
		}
		p := m.Programs[kubecri]
		atMost("kubecri's CPU, percent of a core", p.CPUPercent, cpuGoal)
		atMost("kubecri's RSS, MiB", mebibytes(p.RSS), mebibytes(rssGoal))
		atMost("kubecri's writes to the API server", float64(m.Writes[kubecri]), 0)
	}
	return goals
}

func (g goal) String() string {
	verdict := "holds"
	if !g.Holds {
		verdict = "DOES NOT HOLD"
	}
	return fmt.Sprintf("%s: %.2f, at most %.2f: %s", g.Name, g.Value, g.Bound, verdict)
}

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// print writes the result for people.
func (r *result) print(to io.Writer) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%s; %.0f s each\n\n", r.Machine, r.Seconds)
	for _, m := range r.Measurements {
		fmt.Fprintf(table, "%d pods\tCPU\tRSS\twithout files\tAPI writes\n", m.Pods)
		for _, name := range slices.Sorted(maps.Keys(m.Programs)) {
			p, writes := m.Programs[name], "-"
			if name != "containerd" {
				writes = fmt.Sprint(m.Writes[name])
			}
			fmt.Fprintf(table, "  %s\t%.2f %%\t%.1f MiB\t%.1f MiB\t%s\n", name, p.CPUPercent, mebibytes(p.RSS),
				mebibytes(p.Anonymous), writes)
		}
		fmt.Fprintln(table, "  calls per second\t\t\t\t")
		for _, method := range slices.Sorted(maps.Keys(m.CallsPerSecond)) {
			fmt.Fprintf(table, "    %s\t%.2f\t\t\t\n", method, m.CallsPerSecond[method])
		}
		fmt.Fprintln(table)
	}
	for _, g := range r.Goals {
		fmt.Fprintln(table, g)
	}
	return table.Flush()
}

func (r *result) writeJSON(path string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(raw, '\n'), 0o644)
}
