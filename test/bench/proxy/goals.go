// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// goal is a bound on a ratio that the project set itself.
type goal struct {
	Name  string  `json:"name"`
	Ratio float64 `json:"ratio"`
	Bound float64 `json:"bound"`
	Holds bool    `json:"holds"`
}

// goalsOf returns the goals as they came out, or none if a workload was left out.
func goalsOf(r *result) []goal {
	list, largest := r.costsOf(list1000), r.costsOf(largestLists)
	passed, injected := r.costsOf(passedCreate)[kubecri], r.costsOf(injectedCreate)[kubecri]
	if list == nil || largest == nil || passed == (cost{}) || injected == (cost{}) {
		return nil
	}
	return []goal{
		ratioGoal(list1000+": time added, of what the splice adds", list[kubecri].P50, list[splice].P50, 3),
		ratioGoal(list1000+": CPU, of the splice's", list[kubecri].CPU, list[splice].CPU, 3),
		ratioGoal(list1000+": time added, of what re-encoding adds", list[kubecri].P50, list[reencode].P50, 1.0/6),
		ratioGoal(list1000+": CPU, of re-encoding's", list[kubecri].CPU, list[reencode].CPU, 1.0/6),
		ratioGoal(largestLists+": peak memory, of re-encoding's", float64(largest[kubecri].Peak),
			float64(largest[reencode].Peak), 1.0/4),
		ratioGoal("CreateContainer: time added when injected, of when passed", injected.P50, passed.P50, 2),
		ratioGoal("Grant written, of write + fsync + rename", r.GrantWrite.Pin, r.GrantWrite.BareFile, 1.5),
	}
}

func ratioGoal(name string, value, baseline, bound float64) goal {
	ratio := value / baseline
	return goal{Name: name, Ratio: ratio, Bound: bound, Holds: baseline > 0 && ratio <= bound}
}

func (g goal) String() string {
	verdict := "holds"
	if !g.Holds {
		verdict = "DOES NOT HOLD"
	}
	return fmt.Sprintf("%s: %.2f, at most %.2f: %s", g.Name, g.Ratio, g.Bound, verdict)
}
