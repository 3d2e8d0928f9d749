// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import "testing"

// What the host remembers of the plugin's answers is good until the revision grows.
func TestTheRevisionGrowsWhenTheBestTopologyMayHaveChanged(t *testing.T) {
	c := newCluster(t)
	revision := func() uint64 { return c.plugin.Revision() }
	grows := func(what string, want bool, change func()) {
		t.Helper()
		before := revision()
		change()
		if after := revision(); (after > before) != want {
			t.Errorf("%s: revision %d, then %d", what, before, after)
		}
	}
	grows("a first kind of node", true, func() { c.add("n1", "ab cd") })
	grows("another node of the kind", false, func() { c.add("n2", "ef gh") })
	grows("the same node again", false, func() { c.add("n2", "ef gh") })
	grows("a node of another kind", true, func() { c.add("n3", "abcd") })
	grows("one of two nodes of a kind goes", false, func() { c.plugin.RemoveNode("n1") })
	grows("the last node of a kind goes", true, func() { c.plugin.RemoveNode("n3") })
	grows("a node goes that was not known", false, func() { c.plugin.RemoveNode("n4") })
	grows("a node becomes one of another kind", true, func() { c.add("n2", "e f gh") })
}
