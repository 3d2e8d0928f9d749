// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	names "github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// counts are how many GPUs Kubernetes counts for a pod of these containers.
func counts(specs []spec) (most int64) {
	var sidecars, running int64
	for _, s := range specs {
		switch n := s.limits[gpu]; s.kind {
		case grouptree.Init:
			most = max(most, sidecars+n)
		case grouptree.Sidecar:
			sidecars, running = sidecars+n, running+n
		default:
			running += n
		}
	}
	return max(most, running)
}

func TestAPodOfCountsHoldsWhatKubernetesCounts(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 1))
	for range 300 {
		var devices []string
		for i := range 12 {
			devices = append(devices, fmt.Sprintf("gpu %d g%d", i/3, i))
		}
		var specs []spec
		for i := range 1 + random.IntN(5) {
			kind := []grouptree.Kind{grouptree.Init, grouptree.Sidecar, grouptree.Regular}[random.IntN(3)]
			if i > 0 && specs[i-1].kind == grouptree.Regular {
				kind = grouptree.Regular
			}
			specs = append(specs, spec{
				name: fmt.Sprint("c", random.IntN(100), "-", i), kind: kind, limits: list{gpu: 1 + random.Int64N(2)},
			})
		}
		want := counts(specs)
		r := newFixture(t, devices...)
		r.run(requestOf("p", specs...))
		held, got := types.ResourceList{}, int64(0)
		r.holders[0].AddTo(held)
		for _, quantity := range held {
			got += quantity
		}
		if got != want {
			t.Errorf("the pod holds %d, Kubernetes counts %d: %+v", got, want, specs)
		}
	}
}

// held returns how many devices of each resource the latest pod holds.
func (r *fixture) held() types.ResourceList {
	all, held := types.ResourceList{}, types.ResourceList{}
	r.holders[len(r.holders)-1].AddTo(all)
	for name, quantity := range all {
		resource, _, _, _ := names.ParseRequest(name)
		held[resource] += quantity
	}
	return held
}

func TestAGroupSharesDevicesWithOneThatFitsElsewhere(t *testing.T) {
	r := newFixture(t, "nic 0 a", "nic 0 b", "nic 1 c", "nic 1 d", "nic 1 e", "qat 1 f")
	r.run(requestOf("p",
		spec{name: "first", kind: grouptree.Init, requests: list{
			"numa/A/vendor.example:nic": 1, "numa/A/intel.com:qat": 1,
		}},
		spec{requests: list{"numa/A/vendor.example:nic": 2}},
	))
	if held := r.held(); held[nic] != 2 || held[qat] != 1 {
		t.Errorf("the pod holds %v, Kubernetes counts 2 and 1", held)
	}
}

// newGroupPuzzle returns a random puzzle whose containers request GPUs and NICs, those of many of
// them together, and the pod that it is about.
func newGroupPuzzle(random *rand.Rand) (*puzzle, []spec) {
	p := &puzzle{places: map[int]int{}}
	var specs []spec
	for i := range 2 + random.IntN(3) {
		kind := []grouptree.Kind{grouptree.Init, grouptree.Init, grouptree.Sidecar}[random.IntN(3)]
		if i > 0 && (random.IntN(3) == 0 || p.kinds[i-1] == grouptree.Regular) {
			kind = grouptree.Regular
		}
		p.kinds = append(p.kinds, kind)
		limits := list{gpu: random.Int64N(3), nic: random.Int64N(3)}
		if limits[gpu]+limits[nic] == 0 {
			limits[nic] = 1
		}
		specs = append(specs, spec{name: fmt.Sprint("c", random.IntN(100), "-", i), kind: kind,
			limits: limits, requests: list{}})
	}
	resources := []types.ResourceName{gpu, nic}
	for n, short := range []string{"gpu", "nic"} {
		for i := range counted(specs)[resources[n]] + random.Int64N(4) {
			place := []string{"0", "0", "1", "1", "2", names.Unknown}[random.IntN(6)]
			p.devices = append(p.devices, fmt.Sprintf("%s %s %s%d", short, place, short, i))
		}
	}
	for i, s := range specs {
		together, place, prefix := random.IntN(4) > 0, "", "numa/A/"
		if together && random.IntN(3) == 0 {
			place = []string{"0", "1"}[random.IntN(2)]
			prefix = "numa/=" + place + "/"
		}
		for n, short := range []string{"gpu", "nic"} {
			count := s.limits[resources[n]]
			if together && count > 0 {
				s.requests[types.ResourceName(prefix+strings.Replace(string(resources[n]), "/", ":", 1))] = count
			}
			for range count {
				p.wanted = append(p.wanted, wanted{container: i, resource: short, together: together, place: place})
			}
		}
	}
	slices.SortStableFunc(p.wanted, func(a, b wanted) int {
		if a.together != b.together && a.container != b.container {
			return map[bool]int{true: -1, false: 1}[a.together] // those with the fewest ways first
		}
		return 0
	})
	return p, specs
}

func TestAPodHoldsNoMoreThanKubernetesCountsIfAnyPlacementAllowsIt(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 2))
	within, exceeding := 0, 0
	for range 1000 {
		p, specs := newGroupPuzzle(random)
		r := newFixture(t, p.devices...)
		made := requestOf("p", specs...)
		refusal := r.refusal(made)
		if possible := p.solvable(); possible != (refusal == "") {
			t.Fatalf("%+v on %q: possible: %v; nodes %s", specs, p.devices, possible, refusal)
		} else if !possible {
			continue
		}
		counts := counted(specs)
		p.bounds = map[string]int{"gpu": int(counts[gpu]), "nic": int(counts[nic])}
		possible := p.solvable()
		r.run(made)
		held := r.held()
		if fits := held[gpu] <= counts[gpu] && held[nic] <= counts[nic]; fits != possible {
			t.Fatalf("%+v on %q holds %v, Kubernetes counts %v: possible: %v", specs, p.devices, held, counts, possible)
		}
		if possible {
			within++
		} else {
			exceeding++
		}
	}
	if within < 300 || exceeding < 10 {
		t.Errorf("%d pods hold what Kubernetes counts, %d more: too few kinds of pods were tried", within, exceeding)
	}
}
