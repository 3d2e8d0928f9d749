// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"slices"
	"time"
)

// result is what a run found. Times are in microseconds, memory in bytes.
type result struct {
	Workloads  []workloadResult `json:"workloads"`
	GrantWrite grantResult      `json:"grantWrite"`
	Goals      []goal           `json:"goals"`
	// Against compares with the other build, if there is one.
	Against []comparison `json:"against,omitempty"`
}

type workloadResult struct {
	Name     string          `json:"name"`
	Callers  int             `json:"callers"`
	Calls    int             `json:"calls"`
	Variants map[string]cost `json:"variants"`
}

// cost is that of one variant. Of direct, times are those of a call; of the others, what they add
// to that. The CPU time is the proxy's, per call; the memory is the proxy's at its peak, and of
// direct the runtime's.
type cost struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	CPU  float64 `json:"cpu"`
	Peak int64   `json:"peak"`
}

type grantResult struct {
	Pin      float64 `json:"pin"`
	Bare     float64 `json:"bare"`
	BareFile float64 `json:"bareWithoutFolder"`
}

// costsOf returns what the variants of a workload cost, or nothing if it was left out.
func (r *result) costsOf(workload string) map[string]cost {
	for _, w := range r.Workloads {
		if w.Name == workload {
			return w.Variants
		}
	}
	return nil
}

// summarize takes medians of the rounds, in which all variants were measured close to each other,
// and slow calls from all rounds.
func summarize(all []*workload, taken samples, written *grantWrites) *result {
	r := &result{GrantWrite: grantResult{
		Pin: microseconds(quantile(written.pin, 0.5)), Bare: microseconds(quantile(written.bare, 0.5)),
		BareFile: microseconds(quantile(written.bareFile, 0.5)),
	}}
	for _, w := range all {
		variants := map[string]cost{}
		for variant, own := range taken[w.name] {
			variants[variant] = costOf(own, taken[w.name][direct], variant == direct)
		}
		rounds := len(taken[w.name][direct])
		r.Workloads = append(r.Workloads, workloadResult{w.name, w.callers, w.callers * w.calls * rounds, variants})
	}
	r.Goals = goalsOf(r)
	r.Against = compareBuilds(all, taken)
	return r
}

// costOf compares the samples with those of the same rounds without a proxy.
func costOf(own, without []sample, isDirect bool) cost {
	var p50, cpu []time.Duration
	var peaks []int64
	for i, s := range own {
		half := quantile(s.took, 0.5)
		if !isDirect {
			half -= quantile(without[i].took, 0.5)
		}
		p50, cpu, peaks = append(p50, half), append(cpu, s.cpu), append(peaks, s.peak)
	}
	p99 := quantile(pooled(own), 0.99)
	if !isDirect {
		p99 -= quantile(pooled(without), 0.99)
	}
	slices.Sort(p50)
	slices.Sort(cpu)
	slices.Sort(peaks)
	c := cost{P50: microseconds(quantile(p50, 0.5)), P99: microseconds(p99), Peak: peaks[len(peaks)/2]}
	if !isDirect {
		c.CPU = microseconds(quantile(cpu, 0.5))
	}
	return c
}

// pooled returns the times of all rounds, sorted.
func pooled(rounds []sample) []time.Duration {
	var all []time.Duration
	for _, s := range rounds {
		all = append(all, s.took...)
	}
	slices.Sort(all)
	return all
}

// quantile returns the smallest value that at least that part of the sorted values does not exceed.
func quantile(sorted []time.Duration, part float64) time.Duration {
	at := int(part*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(at, 0), len(sorted)-1)]
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

func (r *result) writeJSON(path string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(raw, '\n'), 0o644)
}
