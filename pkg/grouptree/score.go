// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// mode is how a resource is fitted and scored. Its values are the scorer numbers that users write.
type mode int8

const (
	defaultMode mode = iota // enum for names that begin with "enum", left-over for all others
	leftOver                // fits when nothing is left negative; scores the part that is used
	enum                    // fits when a requested bit is there; scores the requested part of the bits
)

// modeOf returns the mode for a scorer number and the name of the resource.
func modeOf(scorer int32, name types.ResourceName) (mode, error) {
	switch mode(scorer) {
	case defaultMode:
		if resource.IsEnumResource(name) {
			return enum, nil
		}
		return leftOver, nil
	case leftOver, enum:
		if scorer == int32(mode(scorer)) {
			return mode(scorer), nil
		}
	}
	return defaultMode, fmt.Errorf("scorer %d is unknown: use 0 (default), 1 (left-over) or 2 (enum)", scorer)
}

// CheckScorer returns an error for a scorer of a resource that is none of those that are known.
func CheckScorer(name types.ResourceName, scorer int32) error {
	_, err := modeOf(scorer, name)
	return err
}

// rate returns the score of one resource. bitsRequested are the bits that the pod requests of it.
func rate(m mode, allocatable, used, bitsRequested int64) float64 {
	if allocatable == 0 {
		return 0
	}
	if m == enum {
		requested := bits.OnesCount64(uint64(allocatable & bitsRequested))
		return float64(requested) / float64(bits.OnesCount64(uint64(allocatable)))
	}
	if used > allocatable { // over-used by others: it must not score above a resource that is just full
		return 1
	}
	return 1 - float64(allocatable-used)/float64(allocatable)
}

// isLimit reports whether a resource, by its name or type, is one that containers need not request
// to use the device: the percent of its compute time. Where a pod requests none of it, it has no
// part in the pod's scores.
func isLimit(name string) bool { return name == "cores" || strings.HasSuffix(name, "/cores") }

// noteScored notes which resources have no part in the scores of the request.
func (p *Placer) noteScored() {
	p.scored = p.scored[:0]
	if len(p.tree.limits) == 0 {
		return
	}
	p.unscored = zeroed(p.unscored, len(p.tree.types))
	for _, typ := range p.tree.limits {
		p.unscored[typ] = true
	}
	for i := range p.req.items {
		if typ := p.types[p.req.items[i].typ]; typ >= 0 {
			p.unscored[typ] = false
		}
	}
	count := int32(0)
	p.scored = append(p.scored, count)
	for r, typ := range p.tree.typ {
		if p.unscored[typ] {
			p.score[r] = 0
		} else {
			count++
		}
		p.scored = append(p.scored, count)
	}
}

// scoredIn returns how many of the resources from lo to hi have a part in the scores.
func (p *Placer) scoredIn(lo, hi int32) int32 {
	if len(p.scored) == 0 {
		return hi - lo
	}
	return p.scored[hi] - p.scored[lo]
}

// mean is the score of an instance: the mean of the scores of the resources below it, which are
// those from lo to hi, in their order.
func (p *Placer) mean(lo, hi int32) float64 {
	count := p.scoredIn(lo, hi)
	if count == 0 {
		return 0
	}
	sum := 0.0
	for _, score := range p.score[lo:hi] {
		sum += score
	}
	return sum / float64(count)
}

// total is the score of the node.
func (p *Placer) total() float64 { return p.mean(0, int32(len(p.score))) }
