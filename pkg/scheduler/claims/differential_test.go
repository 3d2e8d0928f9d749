// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"

	"github.com/kubedevice/kubedevice/pkg/scheduler/claims/allocator"
	"github.com/kubedevice/kubedevice/pkg/scheduler/claims/pool"
	"github.com/kubedevice/kubedevice/pkg/scheduler/claims/selector"
)

// The full run is go test ./pkg/scheduler/claims -run Upstream -claims.cases 2000.
var (
	cases = flag.Int("claims.cases", 200, "number of random clusters that are compared with upstream's allocator")
	seed  = flag.Uint64("claims.seed", 0, "seed of the first of them; each has its own")
)

// mostTime bounds how long upstream's allocator searches: it tries all choices before it gives up.
const mostTime = time.Second

// upstreams allocates by upstream's allocator.
type upstreams struct {
	features structured.Features
	cel      *cel.Cache
}

func newUpstreams() *upstreams {
	features := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	return &upstreams{
		dynamicresources.AllocatorFeatures(features),
		cel.NewCache(100, cel.Features{EnableConsumableCapacity: features.EnableDRAConsumableCapacity}),
	}
}

// allocate returns the results of each claim, nil if there is no allocation.
func (u *upstreams) allocate(
	ctx context.Context, r *random, node *v1.Node, seen []*resourceapi.ResourceSlice,
) ([][]resourceapi.DeviceRequestAllocationResult, error) {
	a, err := structured.NewAllocator(ctx, u.features, structured.AllocatedState{
		AllocatedDevices: r.allocated, AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}, r.classes, seen, u.cel)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, mostTime)
	defer cancel()
	found, err := a.Allocate(ctx, node, r.claims)
	if err != nil || len(found) != len(r.claims) {
		return nil, err
	}
	all := make([][]resourceapi.DeviceRequestAllocationResult, len(found))
	for i := range found {
		for _, result := range found[i].Devices.Results {
			all[i] = append(all[i], resourceapi.DeviceRequestAllocationResult{
				Request: result.Request, Driver: result.Driver, Pool: result.Pool, Device: result.Device,
			})
		}
	}
	return all, nil
}

// TestUpstreamsAllocatorFindsTheSame compares on random clusters: where upstream's allocator finds
// an allocation, so do we, with the same alternatives; where it finds none, neither do we; and the
// choice that we make in the end is one that upstream's allocator makes when it sees these devices
// alone, and is never worse than its own. What is left to upstream is an exception.
func TestUpstreamsAllocatorFindsTheSame(t *testing.T) {
	u := newUpstreams()
	selectors := selector.NewCache(cel.Features{EnableConsumableCapacity: u.features.ConsumableCapacity})
	counts := map[string]int{}
	for i := range uint64(*cases) {
		r := newRandom(*seed + i)
		index := pool.NewInventory(u.features).Update(r.slices)
		for _, node := range r.nodes {
			outcome := compareOn(t, u, r, node, index, selectors)
			counts[outcome]++
			if t.Failed() {
				text, _ := json.MarshalIndent(map[string]any{"slices": r.slices, "claims": r.claims}, "", " ")
				t.Fatalf("seed %d, %s:\nallocated %v\n%s", *seed+i, node.Name, r.allocated.UnsortedList(), text)
			}
		}
	}
	t.Logf("outcomes: %v", counts)
	total := 0
	for _, n := range counts {
		total += n
	}
	for _, often := range []string{"allocated", "none", "better", "rearranged"} {
		if counts[often]*50 < total && often != "rearranged" {
			t.Errorf("of %d cases only %d have the outcome %q", total, counts[often], often)
		}
	}
	if left := counts["left"]; left*4 > total {
		t.Errorf("of %d cases %d are left to upstream", total, left)
	}
}

func compareOn(
	t *testing.T, u *upstreams, r *random, node *v1.Node, index *pool.Index, selectors *selector.Cache,
) string {
	t.Helper()
	ctx := t.Context()
	want, upstreamErr := u.allocate(ctx, r, node, r.slices)
	if errors.Is(upstreamErr, context.DeadlineExceeded) {
		return "slow"
	}
	request, err := allocator.Compile(r.claims, r.classes, selectors, allocator.Options{
		Features: u.features, Levels: DefaultLevels,
	})
	var left *allocator.ErrNotModelled
	var none *allocator.NoAllocation
	if err != nil {
		if !errors.As(err, &left) {
			t.Errorf("compile: %v", err)
		}
		return "left"
	}
	reached, err := index.Node(node)
	if err != nil {
		t.Errorf("reach: %v", err)
		return ""
	}
	first, err := request.Allocate(ctx, reached, r.allocated.Has)
	switch {
	case errors.As(err, &left):
		if upstreamErr != nil && left.Reason == allocator.ReasonError {
			return "error"
		}
		return "left"
	case upstreamErr != nil && !errors.Is(upstreamErr, structured.ErrFailedAllocationOnNode):
		t.Errorf("upstream fails (%v), ours does not: %v", upstreamErr, err)
		return ""
	case errors.As(err, &none):
		if want != nil {
			t.Errorf("upstream allocates %v, ours finds %q", want, none.Error())
		}
		return "none"
	case err != nil:
		t.Error(err)
		return ""
	case want == nil:
		t.Errorf("ours allocates %v, upstream nothing", first.Results())
		return ""
	}
	if diff := cmp.Diff(want, first.Results()); diff != "" {
		t.Errorf("the first allocation (-upstream +ours):\n%s", diff)
		return ""
	}
	return improveOn(t, u, r, node, request, reached, first)
}

func improveOn(
	t *testing.T, u *upstreams, r *random, node *v1.Node, request *allocator.Request, reached *pool.Node,
	first *allocator.Allocation,
) string {
	t.Helper()
	ctx := t.Context()
	best, err := request.Improve(ctx, reached, r.allocated.Has)
	if err != nil {
		t.Errorf("improve: %v", err)
		return ""
	}
	if first.Score() != best.Score() {
		t.Errorf("the alternatives changed: %v, %v", first.Results(), best.Results())
	}
	cost := func(a *allocator.Allocation) allocator.Cost {
		c, err := request.CostOf(ctx, reached, r.allocated.Has, a)
		if err != nil {
			t.Error(err)
		}
		return c
	}
	order := cost(best).Compare(cost(first))
	if order > 0 {
		t.Errorf("the choice %v costs %+v, upstream's %+v", best.Results(), cost(best), cost(first))
	}
	seen, err := u.allocate(ctx, r, node, slicesOf(best, reached, request.RequestsAll()))
	switch {
	case err != nil || seen == nil:
		t.Errorf("upstream does not accept %v: %v", best.Results(), err)
	case slices.Equal(texts(seen), texts(best.Results())):
	case request.RequestsAll():
		return "rearranged"
	case !slices.Equal(sorted(texts(seen)), sorted(texts(best.Results()))):
		if chosen := devicesIn(best.Results()); slices.ContainsFunc(devicesIn(seen), func(device string) bool {
			return !slices.Contains(chosen, device)
		}) {
			t.Errorf("upstream makes %v of %v", texts(seen), texts(best.Results()))
		}
		return "rearranged"
	}
	if order < 0 {
		return "better"
	}
	return "allocated"
}

// texts returns results as text, claim by claim.
func texts(all [][]resourceapi.DeviceRequestAllocationResult) (texts []string) {
	for i, results := range all {
		for _, r := range results {
			texts = append(texts, fmt.Sprintf("%d %s %s/%s/%s", i, r.Request, r.Driver, r.Pool, r.Device))
		}
	}
	return texts
}

// devicesIn returns the devices of results, sorted.
func devicesIn(all [][]resourceapi.DeviceRequestAllocationResult) (devices []string) {
	for _, results := range all {
		for _, r := range results {
			devices = append(devices, r.Driver+" "+r.Pool+" "+r.Device)
		}
	}
	return sorted(devices)
}

func sorted(texts []string) []string {
	slices.Sort(texts)
	return texts
}
