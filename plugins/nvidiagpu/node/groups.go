// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package node

// groups numbers the groups of GPUs at one level. A GPU keeps its first number,
// without regard to the others: it is part of the names under which pods hold the GPU.
type groups struct {
	number map[string]int // by UUID
	next   int
}

func newGroups() *groups {
	return &groups{number: map[string]int{}}
}

// add numbers those of uuids that have no number yet: that of a GPU they are joined to, over others
// if need be, or a new one. joined reports whether the GPUs at two positions are joined.
func (g *groups) add(uuids []string, joined func(i, j int) bool) {
	seen := make([]bool, len(uuids))
	for first := range uuids {
		if seen[first] {
			continue
		}
		seen[first] = true
		group := []int{first}
		for at := 0; at < len(group); at++ {
			for other := range uuids {
				if !seen[other] && joined(group[at], other) {
					seen[other] = true
					group = append(group, other)
				}
			}
		}
		g.assign(uuids, group)
	}
}

func (g *groups) assign(uuids []string, group []int) {
	number, known := 0, false
	for _, i := range group {
		if number, known = g.number[uuids[i]]; known {
			break
		}
	}
	if !known {
		number = g.next
		g.next++
	}
	for _, i := range group {
		if _, ok := g.number[uuids[i]]; !ok {
			g.number[uuids[i]] = number
		}
	}
}
