// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import "math"

// boundedSteps is the maximum number of steps to look for a placement by which a pod holds no more
// than Kubernetes counts.
const boundedSteps = DefaultStepLimit / 10

// setBounds sets the bounds to what Kubernetes counts for the pod, and held to nothing. Kubernetes
// counts whole devices: resources of which no device of the node has more than one. There is no
// bound for others, such as memory.
func (p *Placer) setBounds() {
	kinds := len(p.tree.types)
	p.bounds, p.held = zeroed(p.bounds, kinds), zeroed(p.held, kinds)
	for typ := range p.bounds {
		p.bounds[typ] = math.MaxInt64
	}
	for i, counted := range p.req.counted {
		if typ := p.types[i]; typ >= 0 {
			p.bounds[typ] = counted
		}
	}
	for r, allocatable := range p.tree.allocatable {
		if allocatable > 1 {
			p.bounds[p.tree.typ[r]] = math.MaxInt64
		}
	}
}

// exceeds reports whether the pod, as it is placed, holds more than Kubernetes counts for it.
func (p *Placer) exceeds() bool {
	if p.req.counted == nil {
		return false
	}
	p.setBounds()
	p.exact.steps += len(p.pod)
	for r, quantity := range p.pod {
		typ := p.tree.typ[r]
		if p.held[typ] = addCapped(p.held[typ], quantity); p.held[typ] > p.bounds[typ] {
			return true
		}
	}
	return false
}

// searchWithin is searchAll for placements by which the pod holds no more than Kubernetes counts.
// It takes at most half of the steps that are left, and boundedSteps.
func (p *Placer) searchWithin() *Placement {
	limit := p.limit
	p.limit = min(p.exact.steps+boundedSteps, (p.exact.steps+limit)/2)
	p.checkAt = min(p.checkAt, p.limit)
	p.setBounds()
	p.bounded = true
	placement := p.searchAll()
	p.bounded, p.limit = false, limit
	if !p.exact.timedOut {
		p.exact.limitHit = false
		p.checkAt = min(limit, p.exact.steps+stepsPerClockCheck)
	}
	return placement
}
