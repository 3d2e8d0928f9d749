// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
)

func TestPartitionedGPUsGetTheInstancesOfTheirLayout(t *testing.T) {
	library := nvmltest.Build(t, hopper())
	part := library.At
	unfinished := part("3g.40gb", 4)
	unfinished.Compute = []int{}
	for name, test := range map[string]struct {
		layouts string // of the second GPU
		there   map[int][]nvmltest.Part
		want    map[int][]string
		problem string
	}{
		"a GPU that is not partitioned stays as it is": {
			layouts: "[{instances: [7g.80gb]}]", want: map[int][]string{},
		},
		"an empty GPU gets all, and one that is not named nothing": {
			layouts: "[{gpus: [" + nvmltest.UUID(1) + "], instances: [3g.40gb, 1g.10gb, 2g.20gb]}]",
			there:   map[int][]nvmltest.Part{0: {}, 1: {}},
			want:    map[int][]string{0: {}, 1: {"2g.20gb@0", "1g.10gb@2", "3g.40gb@4"}},
		},
		"what is there stays where it is": {
			layouts: "[{instances: [3g.40gb, 1g.10gb, 1g.10gb]}]",
			there:   map[int][]nvmltest.Part{1: {part("1g.10gb", 5)}},
			want:    map[int][]string{1: {"3g.40gb@0", "1g.10gb@4", "1g.10gb@5"}},
		},
		"instances that are not of the layout are left alone": {
			layouts: "[{instances: [2g.20gb]}]",
			there:   map[int][]nvmltest.Part{1: {part("4g.40gb", 0)}},
			want:    map[int][]string{1: {"4g.40gb@0", "2g.20gb@4"}},
		},
		"where not all fit, those are created that come first": {
			layouts: "[{instances: [1g.10gb, 3g.40gb, 2g.20gb]}]",
			there:   map[int][]nvmltest.Part{1: {part("4g.40gb", 0)}},
			want:    map[int][]string{1: {"4g.40gb@0", "1g.10gb@6"}},
			problem: "there is no room for 3g.40gb, 2g.20gb beside its other MIG instances",
		},
		"a GPU instance that a crash has left without a compute instance gets one": {
			layouts: "[{instances: [3g.40gb]}]",
			there:   map[int][]nvmltest.Part{1: {unfinished}},
			want:    map[int][]string{1: {"3g.40gb@4"}},
		},
		"a profile that the GPU does not have": {
			layouts: "[{instances: [1g.5gb]}]", there: map[int][]nvmltest.Part{1: {}},
			want: map[int][]string{1: {}}, problem: "there is no room for 1g.5gb",
		},
	} {
		t.Run(name, func(t *testing.T) {
			library.Partition(t, test.there)
			d := configured(t, library, "flags: {migStrategy: mixed}\nkubedevice: {migLayouts: "+test.layouts+"}")
			first := update(t, d)
			if diff := cmp.Diff(test.want, library.Partitions(t)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !strings.Contains(d.problems, test.problem) || (test.problem == "") != (d.problems == "") {
				t.Errorf("problems: %q, want %q", d.problems, test.problem)
			}
			if diff := cmp.Diff(first, update(t, startedAt(t, d.paths))); diff != "" {
				t.Errorf("after a restart (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(test.want, library.Partitions(t)); diff != "" {
				t.Errorf("after a restart (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAProfileBecomesFreeWhenItsSlicesAre: the administrator changes the layout while an instance
// is in use, and destroys the others.
func TestAProfileBecomesFreeWhenItsSlicesAre(t *testing.T) {
	library := nvmltest.Build(t, hopper())
	library.Partition(t, map[int][]nvmltest.Part{0: {}})
	d := configured(t, library, "flags: {migStrategy: mixed}\n"+
		"kubedevice: {migLayouts: [{instances: [1g.10gb, 1g.10gb, 1g.10gb, 1g.10gb, 1g.10gb, 1g.10gb, 1g.10gb]}]}")
	if info := update(t, d); info.KubeAlloc["nvidia.com/mig-1g.10gb"] != 7 {
		t.Fatalf("counts: %v", info.KubeAlloc)
	}
	next := configured(t, library, "flags: {migStrategy: mixed}\nkubedevice: {migLayouts: [{instances: [3g.40gb]}]}")
	if info := update(t, next); info.KubeAlloc["nvidia.com/mig-1g.10gb"] != 7 {
		t.Errorf("instances that may be in use were destroyed: %v", info.KubeAlloc)
	}
	library.Partition(t, map[int][]nvmltest.Part{0: {library.At("1g.10gb", 2)}}) // the one that is in use
	want := types.ResourceList{"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 1, "nvidia.com/mig-3g.40gb": 1}
	if diff := cmp.Diff(want, update(t, next).KubeAlloc); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
