// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheBestConnectedGPUsOfANode(t *testing.T) {
	var (
		nvswitch = topology{{8}}
		sockets  = topology{{2, 2}, {2, 2}}
		pairs    = topology{{2, 2}}
		odd      = topology{{4, 1}, {3}, {2, 2, 2}}
		unknown  = topology{{1, 1, 1, 1}}
	)
	tests := map[string]struct {
		node topology
		n    int
		want topology
	}{
		"all of an NVSwitch are close":               {nvswitch, 5, topology{{5}}},
		"a pair":                                     {sockets, 2, topology{{2}}},
		"two pairs are taken in one socket":          {sockets, 4, topology{{2, 2}}},
		"three of two pairs":                         {pairs, 3, topology{{2, 1}}},
		"five need the other socket":                 {sockets, 5, topology{{2, 2}, {1}}},
		"all there is":                               {sockets, 8, sockets},
		"more than there is":                         {sockets, 9, nil},
		"none":                                       {sockets, 0, nil},
		"the socket that needs the fewest groups":    {odd, 4, topology{{4}}},
		"the only socket that is large enough":       {odd, 6, topology{{2, 2, 2}}},
		"the rest goes where it needs fewest groups": {odd, 9, topology{{2, 2, 2}, {3}}},
		"GPUs of unknown topology are one by one":    {unknown, 2, topology{{1, 1}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := test.node.canonical()
			got, left := node.take(test.n)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("take (-want +got):\n%s", diff)
			}
			if got.size()+left.size() != node.size() {
				t.Errorf("%v are taken of %v, and %v is left", got, node, left)
			}
		})
	}
}

func TestTheBestOfAllNodesIsRequested(t *testing.T) {
	c := newCatalogue()
	check := func(when string, n int, want topology) {
		t.Helper()
		for range 2 { // the second answer is a remembered one
			if diff := cmp.Diff(want, c.bestFor(n)); diff != "" {
				t.Errorf("%s, for %d GPUs (-want +got):\n%s", when, n, diff)
			}
		}
	}
	check("no node", 2, nil)
	c.set("flat", topology{{1, 1, 1, 1}}.canonical())
	check("a node of unknown topology", 2, topology{{1, 1}})
	c.set("pairs", topology{{2, 2}}.canonical())
	c.set("pairs-too", topology{{2, 2}}.canonical())
	check("with pairs", 2, topology{{2}})
	check("with pairs", 4, topology{{2, 2}})
	c.set("switch", topology{{8}}.canonical())
	check("with an NVSwitch", 4, topology{{4}})
	c.set("switch", topology{{3}}.canonical())
	check("with an NVSwitch of which GPUs are gone", 4, topology{{2, 2}})
	check("with an NVSwitch of which GPUs are gone", 3, topology{{3}})
	c.remove("switch")
	c.remove("pairs")
	check("with one node of pairs gone", 2, topology{{2}})
	c.remove("pairs-too")
	c.remove("never-there")
	check("with all pairs gone", 2, topology{{1, 1}})
	c.remove("flat")
	check("with no node left", 2, nil)
}
