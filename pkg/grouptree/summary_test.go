// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"math/rand/v2"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// The necessary conditions refuse no request that the brute-force search can place, and they decide
// most of the cases without a placement.
func TestConditionsRefuseOnlyWhatDoesNotFit(t *testing.T) {
	refused, impossible, fitting := 0, 0, 0
	for seed := range uint64(1500) {
		s := randomScenario(rand.New(rand.NewPCG(3, seed)))
		_, where, complete := newOracle(s).best()
		if !complete {
			continue
		}
		tree, req := mustTree(t, &s.node), mustRequest(t, &s.pod, s.spec)
		mayFit := tree.Summarize(tree.Dense(s.node.Used)).MayFit(req)
		switch {
		case where != nil && !mayFit:
			t.Fatalf("refused, but the oracle places it: %v\nnode: %v\npod: %v\nspec: %v", where, s.node, s.pod, s.spec)
		case where != nil:
			fitting++
		case !mayFit:
			refused++
			fallthrough
		default:
			impossible++
		}
	}
	t.Logf("%d fit, %d do not, of which the conditions refuse %d", fitting, impossible, refused)
	if fitting < 100 || refused < impossible/2 {
		t.Error("the conditions decide too little, or the random cases are not varied enough")
	}
}

// Each case that the conditions about groups refuse differs in one property from one that may fit.
func TestConditionsCountGroups(t *testing.T) {
	for name, test := range map[string]struct {
		taken   []int
		sockets [][]int
		want    bool
	}{
		"a pair is free":                    {[]int{0, 2, 4}, [][]int{{2}}, true},
		"as many GPUs, but no pair":         {[]int{0, 2, 4, 6}, [][]int{{2}}, false},
		"a socket with two pairs":           {[]int{0, 1, 2, 3}, [][]int{{2, 2}}, true},
		"two pairs, each in another socket": {[]int{2, 3, 6, 7}, [][]int{{2, 2}}, false},
		"two pairs for two pairs":           {[]int{2, 3, 6, 7}, [][]int{{2}, {2}}, true},
		"one pair and two single GPUs":      {[]int{0, 3, 6, 7}, [][]int{{2}, {2}}, false},
		"more than there is":                {nil, [][]int{{4, 4}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			node := busy(machine(8), test.taken...)
			tree, req := mustTree(t, node), mustRequest(t, podRequesting(8, test.sockets...), nil)
			if got := tree.Summarize(tree.Dense(node.Used)).MayFit(req); got != test.want {
				t.Errorf("may fit: %v, want %v", got, test.want)
			}
		})
	}
}

// Ordinary requests take a small part of the limit, and the walk alone places them.
func TestOrdinaryRequestsTakeFewSteps(t *testing.T) {
	const most = 2_000
	for name, pod := range map[string]*types.PodInfo{
		"1 GPU": podRequesting(8, []int{1}), "a pair": podRequesting(8, []int{2}),
		"8 GPUs": podRequesting(8, []int{2, 2}, []int{2, 2}),
	} {
		node := machine(8)
		for g := range 8 { // each in a different state
			node.Used[gpuName(8, g)+"/memory"] = int64(g)
		}
		tree, req := mustTree(t, node), mustRequest(t, pod, nil)
		got := NewPlacer(0).Place(tree, tree.Dense(node.Used), req)
		t.Logf("%s: %d steps", name, got.Steps)
		if !got.Fits || got.Exact || got.Steps > most {
			t.Errorf("%s: %+v, want a placement of the walk in at most %d steps", name, got, most)
		}
	}
}
