// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
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
