// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"math"
	"math/rand/v2"
)

// restart is how many mutations in a row may be without success before a search starts again.
const restart = 60

// Climb looks for costly shapes of a machine: it keeps each mutation that costs as much as what it
// comes from, and starts again from an ordinary pod when many were without success. It goes on
// until visit, which returns a shape's cost, reports that it has seen enough. The order of shapes
// depends on the seed and on the costs alone.
func Climb(machine Machine, seed uint64, visit func(Shape) (cost int64, enough bool)) {
	rng := rand.New(rand.NewPCG(uint64(machine), seed))
	for {
		first := First(machine)
		for range rng.IntN(30) {
			first = first.Mutate(rng)
		}
		if climb(rng, first, restart, visit) {
			return
		}
	}
}

// ClimbFrom is Climb from this shape alone.
func ClimbFrom(first Shape, seed uint64, visit func(Shape) (cost int64, enough bool)) {
	climb(rand.New(rand.NewPCG(uint64(first.Machine), seed)), first, math.MaxInt, visit)
}

// climb mutates a shape until so many mutations in a row were without success, or visit has seen
// enough.
func climb(rng *rand.Rand, best Shape, attempts int, visit func(Shape) (int64, bool)) (enough bool) {
	bestCost := int64(0)
	for inVain := 0; inVain < attempts; inVain++ {
		next := best
		for range 1 + rng.IntN(3) {
			next = next.Mutate(rng)
		}
		cost, enough := visit(next)
		if enough {
			return true
		}
		if cost >= bestCost {
			if cost > bestCost+bestCost/50 {
				inVain = 0
			}
			best, bestCost = next, cost
		}
	}
	return false
}
