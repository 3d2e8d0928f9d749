// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import "math/rand/v2"

// restart is how many mutations in a row may be in vain before a search begins anew.
const restart = 60

// Climb looks for costly shapes of a machine: it keeps each mutation that costs as much as what it
// comes from, and begins anew from an ordinary pod when many were in vain. It goes on until visit,
// which returns a shape's cost, reports that it has seen enough. The order of shapes depends on the
// seed and on the costs alone.
func Climb(machine Machine, seed uint64, visit func(Shape) (cost int64, enough bool)) {
	rng := rand.New(rand.NewPCG(uint64(machine), seed))
	best, bestCost, inVain := First(machine), int64(0), restart
	for {
		next := best
		if inVain >= restart {
			next, bestCost, inVain = First(machine), 0, 0
			for range rng.IntN(30) {
				next = next.Mutate(rng)
			}
		}
		for range 1 + rng.IntN(3) {
			next = next.Mutate(rng)
		}
		cost, enough := visit(next)
		if enough {
			return
		}
		if cost >= bestCost {
			if cost > bestCost+bestCost/50 {
				inVain = 0
			}
			best, bestCost = next, cost
		}
		inVain++
	}
}
