// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import "slices"

// Place places a request on a node. used is the vector of used quantities, of the tree's length;
// Place only reads it.
func (p *Placer) Place(tree *DeviceTree, used []int64, req *Request) *Placement {
	p.reset(tree, used, req)
	var walked *Placement
	if score, ok := p.walk(); ok {
		walked = &Placement{
			Fits: true, Score: score, Assigned: slices.Clone(p.assigned), Exceeds: p.exceeds(), Steps: p.steps(),
		}
		if !walked.Exceeds {
			return walked
		}
	}
	if p.exact.limitHit {
		if walked != nil {
			return walked
		}
		return p.limitPlacement()
	}
	p.undo(0)
	if req.counted != nil {
		if within := p.searchWithin(); within.Fits {
			return within
		}
	}
	if walked != nil {
		walked.Steps = p.steps()
		return walked
	}
	placement := p.searchAll()
	placement.Exceeds = placement.Fits && req.counted != nil
	return placement
}

// PlaceWithin is Place with its own limits.
func (p *Placer) PlaceWithin(tree *DeviceTree, used []int64, req *Request, limits Limits) *Placement {
	p.setLimits(limits)
	return p.Place(tree, used, req)
}
