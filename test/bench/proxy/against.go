// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/kubedevice/kubedevice/test/bench/statistics"
)

// comparison is what a workload costs with this build, as ratios to the other build's.
type comparison struct {
	Workload string `json:"workload"`
	// Time is that of a call through kubecri, the runtime's included.
	Time ratio `json:"time"`
	// CPU is kubecri's own for a call.
	CPU ratio `json:"cpu"`
}

// ratio is the median of the rounds' ratios, with the bounds of its median, which are 0 for fewer
// than five rounds.
type ratio struct {
	Median float64 `json:"median"`
	Lower  float64 `json:"lower"`
	Upper  float64 `json:"upper"`
}

// compareBuilds returns a comparison for each workload, or none without another build. The samples
// of a round were taken within seconds, so each round gives a ratio.
func compareBuilds(all []*workload, taken samples) []comparison {
	var list []comparison
	for _, w := range all {
		before := taken[w.name][other]
		if len(before) == 0 {
			return nil
		}
		var time, cpu []float64
		for i, s := range taken[w.name][kubecri] {
			time = append(time, float64(quantile(s.took, 0.5))/float64(quantile(before[i].took, 0.5)))
			if before[i].cpu > 0 {
				cpu = append(cpu, float64(s.cpu)/float64(before[i].cpu))
			}
		}
		list = append(list, comparison{Workload: w.name, Time: ratioOf(time), CPU: ratioOf(cpu)})
	}
	return list
}

// ratioOf is the zero ratio where nothing was measured: a call may take less CPU than can be read.
func ratioOf(rounds []float64) ratio {
	if len(rounds) == 0 {
		return ratio{}
	}
	r := ratio{Median: statistics.Median(rounds)}
	r.Lower, r.Upper, _ = statistics.Bounds(rounds)
	return r
}

func (c comparison) String() string {
	return fmt.Sprintf("%s, of the other build's: time %s, CPU %s", c.Workload, c.Time, c.CPU)
}

func (r ratio) String() string {
	if r.Lower == 0 {
		return fmt.Sprintf("%.3f", r.Median)
	}
	return fmt.Sprintf("%.3f (%.3f to %.3f)", r.Median, r.Lower, r.Upper)
}
