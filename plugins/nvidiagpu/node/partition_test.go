// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
)

// reshaping returns GPUs with a layout of the second one that replaces idle instances, and their
// clock.
func reshaping(t *testing.T, library nvmltest.Library, instances string) (d *Device, clock *time.Time) {
	t.Helper()
	d = configured(t, library, "flags: {migStrategy: mixed}\n"+
		"kubedevice: {migLayouts: [{gpus: ["+nvmltest.UUID(1)+"], instances: ["+instances+"], replaceIdle: true}]}")
	now := time.Now()
	d.holding.now = func() time.Time { return now }
	return d, &now
}

// held is the name of an instance that a pod holds.
func held(gi int) string { return "resource/group/gpugrp1/0/gpugrp0/1/" + instance(1, gi, 0) }

func TestIdleInstancesMakeRoomForTheLayout(t *testing.T) {
	library := nvmltest.Build(t, hopper())
	part := library.At
	smalls := []nvmltest.Part{part("1g.10gb", 0), part("1g.10gb", 1), part("1g.10gb", 4), part("1g.10gb", 5)}
	for name, test := range map[string]struct {
		layout string
		held   []string
		want   []string
		less   int64 // instances of 1g.10gb that are not offered first
		short  string
	}{
		"as few go as possible": {
			layout: "3g.40gb", want: []string{"3g.40gb@0", "1g.10gb@4", "1g.10gb@5"}, less: 2,
		},
		"none goes that a pod holds": {
			layout: "3g.40gb", held: []string{held(2)}, want: []string{"1g.10gb@0", "1g.10gb@1", "3g.40gb@4"}, less: 2,
		},
		"one of the layout goes if it is in the way, and is created elsewhere": {
			layout: "4g.40gb, 1g.10gb, 1g.10gb, 1g.10gb", held: []string{held(3), held(4)},
			want: []string{"4g.40gb@0", "1g.10gb@4", "1g.10gb@5", "1g.10gb@6"}, less: 2,
		},
		"nothing goes in vain": {
			layout: "7g.80gb", held: []string{held(1)}, short: "there is no room for 7g.80gb",
			want: []string{"1g.10gb@0", "1g.10gb@1", "1g.10gb@4", "1g.10gb@5"},
		},
		"what is in no instance's way stays": {
			layout: "1g.10gb+me", want: []string{"1g.10gb@0", "1g.10gb@1", "1g.10gb@4", "1g.10gb@5", "1g.10gb+me@6"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			library.Partition(t, map[int][]nvmltest.Part{1: smalls})
			d, now := reshaping(t, library, test.layout)
			d.SetHeld(test.held, true)
			if got := update(t, d).KubeAlloc["nvidia.com/mig-1g.10gb"]; got != 4-test.less {
				t.Errorf("%d instances are offered, want %d", got, 4-test.less)
			}
			if test.less > 0 {
				*now = now.Add(withdrawal - time.Second)
				update(t, d)
				if got := len(library.Partitions(t)[1]); got != 4 {
					t.Errorf("%d instances are there before the time, want 4", got)
				}
			}
			*now = now.Add(time.Second)
			update(t, d)
			if diff := cmp.Diff(test.want, library.Partitions(t)[1]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !strings.Contains(d.problems, test.short) || (test.short == "") != (d.problems == "") {
				t.Errorf("problems: %q, want %q", d.problems, test.short)
			}
			before := library.Partitions(t)
			*now = now.Add(time.Hour)
			update(t, d)
			if diff := cmp.Diff(before, library.Partitions(t)); diff != "" {
				t.Errorf("an hour later (-before +after):\n%s", diff)
			}
		})
	}
}

func TestAnInstanceThatAPodGetsAfterAllIsOfferedAgain(t *testing.T) {
	library := nvmltest.Build(t, hopper())
	library.Partition(t, map[int][]nvmltest.Part{1: {library.At("4g.40gb", 0)}})
	for name, late := range map[string]func(*Device){
		"a pod holds it":                   func(d *Device) { d.SetHeld([]string{held(1)}, true) },
		"a pod may be about to":            func(d *Device) { d.SetHeld(nil, false) },
		"the layout has changed meanwhile": func(d *Device) { d.config.Layouts = nil },
	} {
		t.Run(name, func(t *testing.T) {
			d, now := reshaping(t, library, "3g.40gb, 3g.40gb")
			d.SetHeld(nil, true)
			if got := update(t, d).KubeAlloc["nvidia.com/mig-4g.40gb"]; got != 0 {
				t.Fatalf("%d are offered, want 0", got)
			}
			late(d)
			*now = now.Add(withdrawal)
			if got := update(t, d).KubeAlloc["nvidia.com/mig-4g.40gb"]; got != 1 {
				t.Errorf("%d are offered, want 1", got)
			}
			d.SetHeld(nil, true)
			update(t, d)
			if got := library.Partitions(t)[1]; !slices.Contains(got, "4g.40gb@0") {
				t.Errorf("it is gone, and was not offered just before: %v", got)
			}
		})
	}
}

// Meanwhile a pod may have got it.
func TestAnInstanceIsNotDestroyedByAnOldAnswerWhoHoldsIt(t *testing.T) {
	library := nvmltest.Build(t, hopper())
	library.Partition(t, map[int][]nvmltest.Part{1: {library.At("4g.40gb", 0)}})
	d, now := reshaping(t, library, "3g.40gb, 3g.40gb")
	d.SetHeld(nil, true)
	update(t, d)
	*now = now.Add(withdrawal)
	d.holding.reported = time.Now().Add(-2 * fresh) // the look at the GPUs has hung
	update(t, d)
	if got := library.Partitions(t)[1]; !slices.Contains(got, "4g.40gb@0") {
		t.Errorf("it is gone: %v", got)
	}
	d.SetHeld(nil, true)
	update(t, d)
	if got := library.Partitions(t)[1]; slices.Contains(got, "4g.40gb@0") {
		t.Errorf("it is still there: %v", got)
	}
}

func TestAHostThatNeverReportsHoldersLosesNoInstance(t *testing.T) {
	library := nvmltest.Build(t, hopper())
	library.Partition(t, map[int][]nvmltest.Part{1: {library.At("4g.40gb", 0)}})
	d, now := reshaping(t, library, "7g.80gb")
	for range 3 {
		if got := update(t, d).KubeAlloc["nvidia.com/mig-4g.40gb"]; got != 1 {
			t.Errorf("%d are offered, want 1", got)
		}
		*now = now.Add(withdrawal)
	}
}

func TestAnInstanceThatSomeProgramUsesIsLetAlone(t *testing.T) {
	library := nvmltest.Build(t, hopper())
	library.Partition(t, map[int][]nvmltest.Part{1: {library.At("4g.40gb", 0)}})
	library.Use(t, 1, 1)
	d, now := reshaping(t, library, "7g.80gb")
	d.SetHeld(nil, true)
	update(t, d)
	*now = now.Add(withdrawal)
	update(t, d)
	const want = "4g.40gb is in the way of the layout, no pod holds it, and it cannot be destroyed"
	if !strings.Contains(d.problems, want) {
		t.Errorf("problems: %q", d.problems)
	}
	if got := update(t, d).KubeAlloc["nvidia.com/mig-4g.40gb"]; got != 1 {
		t.Errorf("%d are offered, want 1", got)
	}
	library.Partition(t, map[int][]nvmltest.Part{1: {library.At("4g.40gb", 0)}}) // the program has ended
	*now = now.Add(refusal)
	update(t, d)
	*now = now.Add(withdrawal)
	update(t, d)
	if diff := cmp.Diff([]string{"7g.80gb@0"}, library.Partitions(t)[1]); diff != "" || d.problems != "" {
		t.Errorf("%q (-want +got):\n%s", d.problems, diff)
	}
}

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
			problem: "there is no room for 3g.40gb, 2g.20gb next to its other MIG instances: set replaceIdle",
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
