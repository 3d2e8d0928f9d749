// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"fmt"
	"math/bits"

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

// mean is the score of an instance: the mean of the scores of the resources below it, in their
// order.
func mean(scores []float64) float64 {
	if len(scores) == 0 {
		return 0
	}
	sum := 0.0
	for _, score := range scores {
		sum += score
	}
	return sum / float64(len(scores))
}
