// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"math/rand/v2"
	"testing"
)

// A search with few steps reports that a request fits only if it does. It reports that a request
// does not fit only if that is certain, or along with the limit.
func TestAnswersAreCorrectAtAnyLimit(t *testing.T) {
	cut, fitting := 0, 0
	for seed := range uint64(3000) {
		s := randomScenario(rand.New(rand.NewPCG(2, seed)))
		tree, req := mustTree(t, &s.node), mustRequest(t, &s.pod, s.spec)
		used := tree.Dense(s.node.Used)
		truth := NewPlacer(0).Place(tree, used, req)
		for limit := 25; limit <= 200; limit += 25 {
			placer := NewPlacer(limit)
			got := placer.Place(tree, used, req)
			if !got.Exact { // the walk needs no limit: call the search itself
				placer.reset(tree, used, req)
				got = placer.searchAll()
			}
			if placer.exact.steps > limit+overshoot(tree, req) {
				t.Fatalf("%d steps, the limit is %d\nnode: %v\npod: %v", placer.exact.steps, limit, s.node, s.pod)
			}
			if got.LimitHit {
				cut++
			}
			switch {
			case got.Fits:
				fitting++
				checkValid(t, s, tree, req, got)
			case !got.LimitHit && truth.Fits:
				t.Fatalf("limit %d: a request that fits is refused for sure\nnode: %v\npod: %v", limit, s.node, s.pod)
			}
		}
	}
	if cut == 0 || fitting == 0 {
		t.Errorf("%d answers were cut short and %d fit: nothing was tested", cut, fitting)
	}
}
