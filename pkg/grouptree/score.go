// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// mode is how a resource is fitted and scored. Its values are the scorer numbers that users write.
type mode int8

const (
	byDefault mode = iota // enum for names that begin with "enum", left-over for all others
	leftOver              // fits when nothing is left negative; scores the part that is used
	enum                  // fits when a requested bit is there; scores the part of the bits that is asked for
)

// modeOf returns the mode for a scorer number and the last segment of the resource's name.
func modeOf(scorer int32, resource string) (mode, error) {
	switch mode(scorer) {
	case byDefault:
		if isEnum(resource) {
			return enum, nil
		}
		return leftOver, nil
	case leftOver, enum:
		if scorer == int32(mode(scorer)) {
			return mode(scorer), nil
		}
	}
	return byDefault, fmt.Errorf("scorer %d is unknown: use 0 (default), 1 (left-over) or 2 (enum)", scorer)
}

// isEnum reports whether the last segment of a resource's name makes it a bit mask.
func isEnum(resource string) bool {
	return len(resource) >= 4 && strings.EqualFold(resource[:4], "enum")
}

// isEnumName is isEnum for a whole name.
func isEnumName(name types.ResourceName) bool {
	return isEnum(string(name[strings.LastIndexByte(string(name), '/')+1:]))
}

// rate returns the score of one resource. bitsAsked are the bits that the pod has asked of it.
func rate(m mode, allocatable, used, bitsAsked int64) float64 {
	if allocatable == 0 {
		return 0
	}
	if m == enum {
		return float64(bits.OnesCount64(uint64(allocatable&bitsAsked))) / float64(bits.OnesCount64(uint64(allocatable)))
	}
	if used > allocatable { // over-used by others: it must not score above a resource that is just full
		return 1
	}
	return 1 - float64(allocatable-used)/float64(allocatable)
}

// mean is the score of an instance: the mean of the scores of the resources below it, in their order.
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
