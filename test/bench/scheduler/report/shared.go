// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

// Shared is what comes of pods when two schedulers share nodes.
type Shared struct {
	Nodes      int            `json:"nodes"`
	PodsOfNode int            `json:"podsOfNode"`
	Rate       float64        `json:"podsPerSecond"`
	Seconds    float64        `json:"secondsOfPeriod"`
	Periods    []SharedPeriod `json:"periods"`
}

// SharedPeriod is one period. Its pairs are of pods with devices and of others.
type SharedPeriod struct {
	// Fill is the part of the nodes' CPU that pods use; with 1, pods wait for CPU.
	Fill float64 `json:"fill"`
	// Alone says that one scheduler had all pods.
	Alone    bool    `json:"alone,omitempty"`
	Seconds  float64 `json:"seconds"`
	Admitted [2]int  `json:"admitted"`
	Lost     [2]int  `json:"lost"`
}

// Lose returns the part of the bound pods of a kind that lost at the kubelet.
func (p SharedPeriod) Lose(kind int) float64 {
	bound := p.Admitted[kind] + p.Lost[kind]
	if bound == 0 {
		return 0
	}
	return float64(p.Lost[kind]) / float64(bound)
}

func (p SharedPeriod) name() string {
	switch {
	case p.Alone:
		return "full, one scheduler"
	case p.Fill == 1:
		return "full, pods wait"
	}
	return fmt.Sprintf("%.0f %%", 100*p.Fill)
}

func (p SharedPeriod) String() string {
	return fmt.Sprintf("%s: %d and %d pods admitted, %d and %d lost", p.name(), p.Admitted[0], p.Admitted[1], p.Lost[0],
		p.Lost[1])
}

// Print writes the table.
func (s *Shared) Print(to io.Writer) error {
	fmt.Fprintf(to, "%d nodes that hold %d pods each; %g pods are created in a second, half of them with a device; "+
		"periods of %g s.\n\n", s.Nodes, s.PodsOfNode, s.Rate, s.Seconds)
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CPU in use\tpods/s bound\tlost, with devices\tlost, without")
	for _, p := range s.Periods {
		bound := p.Admitted[0] + p.Admitted[1] + p.Lost[0] + p.Lost[1]
		fmt.Fprintf(w, "%s\t%.1f", p.name(), float64(bound)/p.Seconds)
		for kind := range p.Lost {
			fmt.Fprintf(w, "\t%d of %d (%.2f %%)", p.Lost[kind], p.Admitted[kind]+p.Lost[kind], 100*p.Lose(kind))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// WriteJSON writes all numbers to a file.
func (s *Shared) WriteJSON(path string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
