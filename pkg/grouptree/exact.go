// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import "math"

// DefaultStepLimit is the maximum number of steps to place one request on one node. A step inspects
// one instance, resource or request, in the walk and in the exact search, so that the limit bounds
// the work for any request: 2 to 3 ms on one core (BenchmarkStepLimit, BenchmarkHostileRequests).
const DefaultStepLimit = 400_000

// search is the state of the exact search: a depth-first search over the groups of the request in
// canonical order, each trying the instances of its level from the last name to the first. It skips
// branches that cannot matter:
//
//   - of instances with the same structure and state, it tries only the first;
//   - of siblings with equal requests, the later one goes no further up in the order than the
//     earlier one;
//   - it skips an instance that has less free than the group needs in total;
//   - once it has a placement, it skips branches that cannot score higher even if every remaining
//     request gets its best resource.
//
// Init containers have no part in the score: for them the first placement is as good as any.
type search struct {
	steps    int  // inspected instances, resources and requests, including those of the walk
	limitHit bool // the search stopped at a limit,
	timedOut bool // which was the time limit

	position  []int32   // by group: its instance
	tried     []int32   // instances tried so far, for the groups on the way
	remaining []float64 // by group: how much it and the running groups after it can add to the sum of scores at most
	sum       float64   // of scores, current
	now       float64   // the score with all running containers placed

	found    bool
	best     float64
	ceiling  float64 // no placement has a higher rank
	assigned []int32
}

// rank makes scores comparable: scores that differ by less than about 1e-9 rank the same. The
// offset keeps the fractions that scores usually are away from the edges between ranks.
func rank(score float64) float64 { return math.Floor(score*1e9 + 1/math.Pi) }
