// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// way is a way of asking for devices, and the scheduler that is asked.
type way struct {
	name string
	ours bool
	// asks are what pods ask for, in turn.
	asks []ask
}

// ask is what one pod asks for.
type ask struct {
	// gpus are counted by the pod's limits.
	gpus int64
	// annotation is the pod's request of ours, empty for none.
	annotation string
	// claimed is the number of GPUs that a ResourceClaim asks for; several of one NVLink pair.
	claimed int
	// part of a GPU that the pod uses, when it uses but part of one.
	part float64
}

// used returns how many GPUs the pod uses.
func (a ask) used() float64 {
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
	nothing = ask{}
	one     = ask{gpus: 1}
	two     = ask{gpus: 2}
	four    = ask{gpus: 4}
	eight   = ask{gpus: 8}
	pair    = ask{gpus: 2, annotation: pairRequest}
	quarter = ask{annotation: quarterRequest, part: 0.25}
)

var (
	upstreamPlain = way{"upstream, plain pods", false, []ask{nothing}}
	plain         = way{"plain pods", true, []ask{nothing}}
	upstreamOne   = way{"upstream, 1 counted", false, []ask{one}}
	single        = way{"1 GPU", true, []ask{one}}
	claimedOne    = way{"DRA, 1 device", false, []ask{{claimed: 1}}}
	upstreamTwo   = way{"upstream, 2 counted", false, []ask{two}}
	linked        = way{"2 GPUs with NVLink", true, []ask{pair}}
	claimedPair   = way{"DRA, 2 matched devices", false, []ask{{claimed: 2}}}
	upstreamEight = way{"upstream, 8 counted", false, []ask{eight}}
	whole         = way{"8 GPUs", true, []ask{eight}}
	fraction      = way{"quarters of a GPU's memory", true, []ask{quarter}}
	upstreamMixed = way{"upstream, 1 2 4 1 counted", false, []ask{one, two, four, one}}
	mixed         = way{"1, 2 with NVLink, 4, a quarter", true, []ask{one, pair, four, quarter}}
)

// ask returns what the pod of that number in a batch asks for.
func (w way) ask(number int) ask { return w.asks[number%len(w.asks)] }

// usesDevices reports whether the way's pods ask for any device.
func (w way) usesDevices() bool { return w.asks[0] != nothing }

// usesClaims reports whether they do so by ResourceClaims.
func (w way) usesClaims() bool { return w.asks[0].claimed > 0 }

// fill is the part of the GPUs that pods may use when all ask for the same, and when they don't:
// then what is free at the end is in pieces, and a pod for which there is no room would be waited
// for in vain.
const fill, fillMixed = 0.9, 0.4

// podsOn returns how many of the wanted pods so many free nodes are given at a time.
func (w way) podsOn(nodes, wanted int) int {
	part, used := fill, 0.0
	if len(w.asks) > 1 {
		part = fillMixed
	}
	for _, a := range w.asks {
		used += a.used()
	}
	if used == 0 {
		return wanted
	}
	return min(wanted, max(1, int(part*float64(nodes*gpusPerNode*len(w.asks))/used)))
}
