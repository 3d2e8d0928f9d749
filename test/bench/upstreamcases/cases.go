// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"
)

// Case is one of upstream's cases, in one size.
type Case struct {
	// Topic is the directory in scheduler_perf.
	Topic string `json:"topic"`
	// Name is upstream's name of the case, and Workload that of its size.
	Name     string `json:"name"`
	Workload string `json:"workload"`
}

func (c Case) String() string { return c.Name + "/" + c.Workload }

// pattern returns the pattern by which Go's testing finds the case alone. A slash in a workload's
// name begins a further level.
func (c Case) pattern() string {
	levels := strings.Split("BenchmarkPerfScheduling/"+c.String(), "/")
	for i, level := range levels {
		levels[i] = "^" + regexp.QuoteMeta(level) + "$"
	}
	return strings.Join(levels, "/")
}

// cases are what we compare: pods with nothing special, with extended resources, preemption, pods
// that fit nowhere, plugins that compare pods, and DRA. Each has a size that takes seconds on a
// small machine, and one of those that upstream publishes.
var cases = []struct{ topic, name, small, full string }{
	{"misc", "SchedulingBasic", "500Nodes", "5000Nodes_10000Pods"},
	{
		"misc", "SchedulingWithExtendedResource", "500pods_500nodes_DRAExtendedResourceEnabled",
		"5000pods_5000nodes_DRAExtendedResourceEnabled",
	},
	{"default_preemption", "PreemptionBasic", "1000Nodes", "1000Nodes"},
	{"default_preemption", "Unschedulable", "500Nodes/10Init/1kPods", "5kNodes/100Init/10kPods"},
	{"topology_spreading", "TopologySpreading", "500Nodes", "5000Nodes_5000Pods"},
	{"affinity", "SchedulingPodAffinity", "500Nodes", "5000Nodes_5000Pods"},
	{"event_handling", "EventHandlingPodDelete", "50Nodes_500Pods", "50Nodes_500Pods"},
	{"dra", "SchedulingWithResourceClaimTemplate", "2000pods_200nodes", "5000pods_500nodes"},
	{
		"dra/extendedresource", "ExtendedResource", "Implicit_25classes_2000pods_200nodes",
		"Implicit_25classes_5000pods_500nodes",
	},
}

// casesOf returns the cases whose names fit the pattern.
func casesOf(full bool, pattern *regexp.Regexp) []Case {
	var chosen []Case
	for _, c := range cases {
		workload := c.small
		if full {
			workload = c.full
		}
		if found := (Case{Topic: c.topic, Name: c.name, Workload: workload}); pattern.MatchString(found.String()) {
			chosen = append(chosen, found)
		}
	}
	return chosen
}
