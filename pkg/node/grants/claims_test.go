// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestClaimsAreGrantableNextToGrantsAndToEachOther(t *testing.T) {
	one := map[types.ResourceName]int64{cards0: 1}
	other := map[types.ResourceName]int64{cards1: 1}
	for name, test := range map[string]struct {
		claims, granted []Allocation
		want            []string
	}{
		"free devices": {
			claims: []Allocation{wants("a", one), wants("b", other)}, want: []string{"a", "b"},
		},
		"a device that another pod holds": {
			claims: []Allocation{wants("a", one), wants("b", other)}, granted: []Allocation{wants("c", one)},
			want: []string{"b"},
		},
		"a device that two pods claim": {
			claims: []Allocation{wants("a", one), wants("b", one), wants("c", other)}, want: []string{"c"},
		},
		"a pod with a grant": {
			claims: []Allocation{wants("a", other), wants("b", other)}, granted: []Allocation{wants("a", one)},
			want: []string{"b"},
		},
		"more than the node has": {claims: []Allocation{wants("a", map[types.ResourceName]int64{cards0: 2})}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, claim := range Grantable(test.claims, test.granted, capacity) {
				got = append(got, claim.PodUID)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%q are grantable, want %q", got, test.want)
			}
		})
	}
}

// BenchmarkGrantable is a call of PodResources on a node with 110 pods without a grant, each with
// an allocation of 100 resources.
func BenchmarkGrantable(b *testing.B) {
	const pods, resources = 110, 100
	for name, nameOf := range map[string]func(pod, i int) string{
		"own devices":     func(pod, i int) string { return fmt.Sprintf("resource/group/gpu/g%d-%d/memory", pod, i) },
		"the same device": func(_, i int) string { return fmt.Sprintf("resource/group/gpu/g%d/memory", i) },
	} {
		b.Run(name, func(b *testing.B) {
			var claims []Allocation
			for pod := range pods {
				claim := map[types.ResourceName]int64{}
				for i := range resources {
					claim[types.ResourceName(nameOf(pod, i))] = 1
				}
				claims = append(claims, wants(fmt.Sprint(pod), claim))
			}
			has := func(types.ResourceName) (int64, bool) { return pods, true }
			for b.Loop() {
				if grantable := Grantable(claims, nil, has); len(grantable) != pods {
					b.Fatalf("%d are grantable", len(grantable))
				}
			}
		})
	}
}

// Each claim is compared with all others, as if it were the last one that is granted.
func TestAClaimIsGrantableIfItHasNoConflictWithAnyOther(t *testing.T) {
	const before types.ResourceName = "resource/group/numa/1/gpu/g0/memory" // memory0 in another group
	random := rand.New(rand.NewPCG(1, 2))
	names := []types.ResourceName{cards0, cards1, memory0, enum0, before, "resource/group/gpu/g9/cards"}
	counts := map[bool]int{}
	for range 500 {
		pods := make([]Allocation, 2+random.IntN(4))
		for i := range pods {
			wanted := map[types.ResourceName]int64{}
			for range 1 + random.IntN(2) {
				wanted[names[random.IntN(len(names))]] = 1 + random.Int64N(40)*random.Int64N(2)
			}
			pods[i] = wants(fmt.Sprint(i), wanted)
		}
		claims, granted := pods[1:], pods[:1]
		var got []string
		for _, claim := range Grantable(claims, granted, capacity) {
			got = append(got, claim.PodUID)
		}
		for i := range claims {
			others := map[string]*Allocation{}
			for j := range pods {
				if j != i+1 {
					others[pods[j].PodUID] = &pods[j]
				}
			}
			want := FindConflict(claims[i].Holds(), others, capacity) == nil
			counts[want]++
			if slices.Contains(got, claims[i].PodUID) != want {
				t.Fatalf("of %v next to %v, %q are grantable", claims, granted, got)
			}
		}
	}
	if counts[true] < 50 || counts[false] < 50 {
		t.Errorf("the claims have too few different outcomes: %v", counts)
	}
}
