// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// own returns the milliseconds per pod that were spent in our plugin since before, up to and including Reserve, or 0 when that is not
// known. Upstream's points are those of its scheduler, which counts devices.
//
// A scheduler notes what its plugins took for one pod in ten, and drops what there is no room for: calls once a pod, which
// come after those for every node, are hardly ever noted. So what they take is what the extension point takes longer than
// upstream's, where the same plugins are but ours.
func (r readings) own(before readings, upstream map[string]float64) float64 {
	points := r.points(before)
	var took float64
	for _, at := range []string{"PreFilter", "PreScore", "Reserve"} {
		took += points[at] - upstream[at]
	}
	for _, at := range []string{"Filter", "Score"} {
		calls, known := r.forNodes(before, at)
		if !known {
			return 0
		}
		took += calls
	}
	return took
}

// forNodes returns how many milliseconds per pod our plugin's calls for nodes took since before, at Filter or Score: how many calls
// there were, times the mean of those that were noted. They are not known when there were some, and none was noted.
func (r readings) forNodes(before readings, at string) (took float64, known bool) {
	const calls, duration = "scheduler_plugin_evaluation_total", "scheduler_plugin_execution_duration_seconds"
	since := func(name string) float64 { return r.by(point, name, true)[at] - before.by(point, name, true)[at] }
	made, noted := since(calls), since(duration+"_count")
	if made == 0 {
		return 0, true
	}
	if noted == 0 {
		return 0, false
	}
	return 1000 * since(duration+"_sum") / noted * made / (r.scheduled() - before.scheduled()), true
}
