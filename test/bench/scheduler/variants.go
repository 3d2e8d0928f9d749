// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// variant is a way to request devices and the scheduler that serves it.
type variant struct {
	name string
	ours bool
	// requests are what pods request, in turn.
	requests []request
}

// request is what one pod requests.
type request struct {
	// gpus are counted by the pod's limits.
	gpus int64
	// annotation is the pod's request of ours, empty for none.
	annotation string
	// claimed is the number of GPUs that a ResourceClaim requests; several of one NVLink pair.
	claimed int
	// part of a GPU that the pod uses, when it uses but part of one.
	part float64
}

// used returns how many GPUs the pod uses.
func (a request) used() float64 {
	if a.part > 0 {
		return a.part
	}
	return float64(max(a.gpus, int64(a.claimed)))
}

// Requests of ours: two GPUs of one NVLink pair, and a quarter of a GPU's memory.
const (
	pairRequest    = `{"runningcontainer":{"main":{"requests":{"gpugrp0/A/gpu/a/cards":1,"gpugrp0/A/gpu/b/cards":1}}}}`
	quarterRequest = `{"runningcontainer":{"main":{"requests":{"gpu/a/memory":21474836480}}}}`
)

var (
	nothing = request{}
	one     = request{gpus: 1}
	two     = request{gpus: 2}
	four    = request{gpus: 4}
	eight   = request{gpus: 8}
	pair    = request{gpus: 2, annotation: pairRequest}
	quarter = request{annotation: quarterRequest, part: 0.25}
)

var (
	upstreamPlain = variant{"upstream, plain pods", false, []request{nothing}}
	plain         = variant{"plain pods", true, []request{nothing}}
	upstreamOne   = variant{"upstream, 1 counted", false, []request{one}}
	single        = variant{"1 GPU", true, []request{one}}
	claimedOne    = variant{"DRA, 1 device", false, []request{{claimed: 1}}}
	upstreamTwo   = variant{"upstream, 2 counted", false, []request{two}}
	linked        = variant{"2 GPUs with NVLink", true, []request{pair}}
	claimedPair   = variant{"DRA, 2 matched devices", false, []request{{claimed: 2}}}
	upstreamEight = variant{"upstream, 8 counted", false, []request{eight}}
	eightGPUs     = variant{"8 GPUs", true, []request{eight}}
	fraction      = variant{"quarters of a GPU's memory", true, []request{quarter}}
	upstreamMixed = variant{"upstream, 1 2 4 1 counted", false, []request{one, two, four, one}}
	mixed         = variant{"1, 2 with NVLink, 4, a quarter", true, []request{one, pair, four, quarter}}
)

// request returns what the pod of that number in a batch requests.
func (w variant) request(number int) request { return w.requests[number%len(w.requests)] }

// named returns the variant with another name.
func (w variant) named(name string) variant {
	w.name = name
	return w
}

// usesDevices reports whether the variant's pods request any device.
func (w variant) usesDevices() bool { return w.requests[0] != nothing }

// usesClaims reports whether they do so by ResourceClaims.
func (w variant) usesClaims() bool { return w.requests[0].claimed > 0 }

// fill is the part of the GPUs that pods may use when all request the same, and when they don't:
// then what is free at the end is in pieces, and a pod that does not fit would be waited
// for without success.
const fill, fillMixed = 0.9, 0.4

// podsOn returns how many of the wanted pods so many free nodes get at a time.
func (w variant) podsOn(nodes, wanted int) int {
	part, used := fill, 0.0
	if len(w.requests) > 1 {
		part = fillMixed
	}
	for _, a := range w.requests {
		used += a.used()
	}
	if used == 0 {
		return wanted
	}
	return min(wanted, max(1, int(part*float64(nodes*gpusPerNode*len(w.requests))/used)))
}
