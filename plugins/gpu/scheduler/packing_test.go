// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
)

var packingPods = flag.Int("packing.pods", 200, "number of pods of each cluster of the packing test; the figures "+
	"of docs/lab/scheduler.md are of 1000")

// Of as many free GPUs, pods that prefer topology leave about as many pairs free for others as pods
// that require it, and fewer of them wait.
func TestPackingKeepsPairsWhole(t *testing.T) {
	repeated := func(n int, drawing string) []string { return slices.Repeat([]string{drawing}, n) }
	clusters := map[string][]string{
		"8 GPUs under one NVSwitch":     repeated(12, "abcdefgh"),
		"pairs in two sockets":          repeated(12, "ab cd | ef gh"),
		"groups of four in two sockets": repeated(12, "abcd | efgh"),
		"pairs and switches":            append(repeated(6, "ab cd ef gh"), repeated(6, "abcdefgh")...),
	}
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 5))
		var drawings []string
		for range 12 {
			drawings = append(drawings, randomDrawing(random))
		}
		clusters[fmt.Sprintf("random %d", seed)] = append(drawings, "abcdefgh", "ab cd ef gh")
	}
	var preferred, required outcome
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		arrivals := newArrivals(rand.New(rand.NewPCG(1, 6)), *packingPods)
		prefer := newSimulation(t, allocation.TopologyPrefer, clusters[name]...).run(arrivals)
		require := newSimulation(t, allocation.TopologyRequire, clusters[name]...).run(arrivals)
		t.Logf("%-30s prefer %+.1f, require %+.1f", name, prefer, require)
		preferred.add(prefer, len(clusters))
		required.add(require, len(clusters))
	}
	t.Logf("%-30s prefer %+.1f, require %+.1f", "mean", preferred, required)
	if preferred.pairs < required.pairs-3 {
		t.Errorf("%.1f of 100 free GPUs are pairs, %.1f if pods require them", preferred.pairs, required.pairs)
	}
	if preferred.waiting > required.waiting || preferred.used < required.used {
		t.Errorf("%+v are worse than %+v", preferred, required)
	}
}
