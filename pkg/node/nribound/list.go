// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nribound

import (
	"errors"
	"fmt"
	"math/rand/v2"
)

// List has the sizes in bytes of all sandboxes and of all containers that have not ended, and how
// many strings they have together.
type List struct {
	Sandboxes, Containers []int
	Strings               int
}

// Why a list cannot be sent.
var (
	errUnsplittable = errors.New("the runtime does not split a message of so few and so large objects")
	errPanics       = errors.New("the runtime panics when it splits such a list")
	errEndless      = errors.New("the runtime never gets to the end of such a list")
)

const (
	// orders is in how many orders a list is tried.
	orders = 64
	// maxFailedOrders is how many of them may fail: the runtime then registers the plugin at one of
	// the next tries.
	maxFailedOrders = orders / 4
)

// Check returns why a runtime cannot be expected to send the list to a plugin that registers, or
// nil. The order of a runtime's list is random, so it does not depend on that of l.
func (l List) Check() error {
	total := 0
	for _, sizes := range [][]int{l.Sandboxes, l.Containers} {
		for _, size := range sizes {
			total += size + object
		}
	}
	switch {
	case !enforced:
		return nil
	case l.Strings > MaxListStrings:
		return fmt.Errorf("it has %d variables, labels and other strings, and at most %d are sent in time", l.Strings,
			MaxListStrings)
	case total+envelope <= Message:
		return nil
	case total > MaxList:
		return fmt.Errorf("it takes %d bytes, and at most %d are sent in time", total, MaxList)
	}
	random := rand.New(rand.NewPCG(uint64(len(l.Sandboxes)), uint64(total)))
	failed, last := 0, error(nil)
	for range orders {
		err := split(shuffled(random, l.Sandboxes), shuffled(random, l.Containers))
		if errors.Is(err, errPanics) {
			return err
		}
		if err != nil {
			failed, last = failed+1, err
		}
	}
	if failed > maxFailedOrders {
		return last
	}
	return nil
}

func shuffled(random *rand.Rand, sizes []int) []int {
	order := make([]int, len(sizes))
	for i, from := range random.Perm(len(sizes)) {
		order[i] = sizes[from]
	}
	return order
}

// split does what the runtime does with a list in this order, see the package, without sending it.
func split(sandboxes, containers []int) error {
	sandboxesEach, containersEach := len(sandboxes), len(containers)
	for {
		length := envelope + sum(sandboxes[:sandboxesEach]) + sum(containers[:containersEach])
		if length > Message {
			if sandboxesEach+containersEach <= minObjects {
				return errUnsplittable
			}
			sandboxesEach, containersEach = nextCounts(sandboxesEach, containersEach, length)
			if sandboxesEach > len(sandboxes) || containersEach > len(containers) {
				return errPanics
			}
			continue
		}
		sandboxes, containers = sandboxes[sandboxesEach:], containers[containersEach:]
		switch {
		case len(sandboxes)+len(containers) == 0:
			return nil
		case min(sandboxesEach, len(sandboxes))+min(containersEach, len(containers)) == 0:
			return errEndless
		}
		sandboxesEach, containersEach = min(sandboxesEach, len(sandboxes)), min(containersEach, len(containers))
	}
}

// minObjects is the number of objects that a message is not split below.
const minObjects = 8

// nextCounts returns how many objects the runtime puts into the next message, after one of that
// length was too long.
func nextCounts(sandboxes, containers, length int) (int, int) {
	part := min(0.9, float64(Message)/float64(length))
	sandboxes, containers = int(float64(sandboxes)*part), int(float64(containers)*part)
	if sandboxes+containers < minObjects {
		return minObjects / 2, minObjects / 2
	}
	return sandboxes, containers
}

func sum(sizes []int) (total int) {
	for _, size := range sizes {
		total += size + object
	}
	return total
}
