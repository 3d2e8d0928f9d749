// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/kubedevice/kubedevice/test/bench/statistics"
)

// Crowd is who creates pods in addition to those without devices.
type Crowd int

// The crowds.
const (
	// NoTenants stands for pods without devices alone.
	NoTenants Crowd = iota
	// Ordinary are tenants whose pods request no device and fit no node.
	Ordinary
	// Hostile are tenants whose pods cost the scheduler as much as they can.
	Hostile

	// Crowds is how many there are.
	Crowds
)

// String describes the crowd.
func (c Crowd) String() string {
	return [Crowds]string{"no tenants", "pods without devices that fit nowhere", "the worst pods"}[c]
}

// MarshalText writes the crowd's description.
func (c Crowd) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Period is what was measured with a crowd.
type Period struct {
	Sample
	// Refusals is how often the scheduler tried a pod that fit nowhere.
	Refusals int `json:"refusals"`
}

// tenantsGoal is how much of their throughput pods without devices keep at least.
const tenantsGoal = 0.95

// Tenants is how many pods without devices are bound while tenants create others.
type Tenants struct {
	Nodes   int                `json:"nodes"`
	Tenants int                `json:"tenants"`
	Rate    float64            `json:"podsPerSecondOfTenant"`
	Seconds float64            `json:"secondsOfPeriod"`
	Rounds  []map[Crowd]Period `json:"rounds"`
}

// Last describes the last round.
func (t *Tenants) Last() string {
	text := ""
	for crowd := range Crowds {
		s := t.Rounds[len(t.Rounds)-1][crowd]
		text += fmt.Sprintf("%s %.0f pods/s, %.2f ms of CPU each; ", crowd, s.PodsPerSecond(), s.CPUPerPod())
	}
	return text
}

// ratios returns the ratio of the throughput with one crowd to that with another, by round.
func (t *Tenants) ratios(of, to Crowd) []float64 {
	return t.compare(of, to, Period.PodsPerSecond)
}

// compare returns the ratio of a value with one crowd to that with another, by round.
func (t *Tenants) compare(of, to Crowd, value func(Period) float64) []float64 {
	var ratios []float64
	for _, round := range t.Rounds {
		ratios = append(ratios, value(round[of])/value(round[to]))
	}
	return ratios
}

// Print writes the table.
func (t *Tenants) Print(to io.Writer) error {
	fmt.Fprintf(to, "Pods without devices on %d nodes, while %d tenants create %g pods a second each; medians of %d "+
		"periods of %g s.\n\n", t.Nodes, t.Tenants, t.Rate, len(t.Rounds), t.Seconds)
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "the tenants create\tpods/s\tms of the scheduler's CPU per pod\trefusals/s")
	for crowd := range Crowds {
		var rates, cpus, refusals []float64
		for _, round := range t.Rounds {
			s := round[crowd]
			rates, cpus = append(rates, s.PodsPerSecond()), append(cpus, s.CPUPerPod())
			refusals = append(refusals, float64(s.Refusals)/s.Seconds)
		}
		fmt.Fprintf(w, "%s\t%.0f\t%.2f\t%.0f\n", crowd, statistics.Median(rates), statistics.Median(cpus),
			statistics.Median(refusals))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(to)
	for _, pair := range [][2]Crowd{{Hostile, Ordinary}, {Ordinary, NoTenants}, {Hostile, NoTenants}} {
		ratios, cpus := t.ratios(pair[0], pair[1]), t.compare(pair[0], pair[1], Period.CPUPerPod)
		fmt.Fprintf(to, "%s / %s: %.3f of the throughput (%.3f to %.3f), %.3f of the CPU (%.3f to %.3f)\n", pair[0],
			pair[1], statistics.Median(ratios), slices.Min(ratios), slices.Max(ratios), statistics.Median(cpus),
			slices.Min(cpus), slices.Max(cpus))
	}
	_, err := fmt.Fprintf(to, "The first throughput is to be %.2f or more.\n", tenantsGoal)
	return err
}

// WriteJSON writes all numbers.
func (t *Tenants) WriteJSON(path string) error {
	text, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// Missed returns an error if the goal is missed.
func (t *Tenants) Missed() error {
	if got := statistics.Median(t.ratios(Hostile, Ordinary)); got < tenantsGoal {
		return fmt.Errorf("pods without devices keep %.3f of their throughput with the worst pods: less than %.2f",
			got, tenantsGoal)
	}
	return nil
}
