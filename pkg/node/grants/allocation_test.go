// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestAPodHoldsTheDevicesOfItsContainers(t *testing.T) {
	for name, test := range map[string]struct {
		running, init []map[types.ResourceName]int64
		want          types.ResourceList
	}{
		"its containers together": {
			running: []map[types.ResourceName]int64{{memory0: 10}, {memory0: 20, cards0: 1}},
			want:    types.ResourceList{memory0: 30, cards0: 1},
		},
		"its largest init container if it is more": {
			running: []map[types.ResourceName]int64{{memory0: 10}},
			init:    []map[types.ResourceName]int64{{memory0: 40}, {memory0: 35, cards1: 1}},
			want:    types.ResourceList{memory0: 40, cards1: 1},
		},
		"its containers if they are more": {
			running: []map[types.ResourceName]int64{{memory0: 30}, {memory0: 30}},
			init:    []map[types.ResourceName]int64{{memory0: 40}}, want: types.ResourceList{memory0: 60},
		},
		"no sum overflows": {
			running: []map[types.ResourceName]int64{{memory0: math.MaxInt64}, {memory0: math.MaxInt64}},
			want:    types.ResourceList{memory0: math.MaxInt64},
		},
		"a mask is not a quantity": {
			running: []map[types.ResourceName]int64{{enum0: 3}}, want: types.ResourceList{},
		},
	} {
		decision := types.NewPodInfo()
		for i, quantities := range test.running {
			decision.RunningContainers[fmt.Sprint("r", i)] = container(quantities)
		}
		for i, quantities := range test.init {
			decision.InitContainers[fmt.Sprint("i", i)] = container(quantities)
		}
		diff := cmp.Diff(test.want, (&Allocation{InitOrder: []string{"i0", "i1"}, PodInfo: decision}).Holds())
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAnInitContainerRunsAlongWithTheSidecarsBeforeIt(t *testing.T) {
	decision := types.NewPodInfo()
	decision.RunningContainers["side"] = container(map[types.ResourceName]int64{memory0: 10})
	decision.RunningContainers["main"] = container(map[types.ResourceName]int64{memory0: 20})
	decision.InitContainers["init"] = container(map[types.ResourceName]int64{memory0: 40})
	for name, test := range map[string]struct {
		order []string
		want  int64
	}{
		"the sidecar starts before":                      {[]string{"side", "init"}, 50},
		"the sidecar starts after":                       {[]string{"init", "side"}, 40},
		"it is not known: everything is held at once":    {nil, 70},
		"an order that lacks an init container is none":  {[]string{"side"}, 70},
		"containers without devices do not matter to it": {[]string{"a", "side", "b", "init", "c"}, 50},
	} {
		want := types.ResourceList{memory0: test.want}
		if diff := cmp.Diff(want, (&Allocation{InitOrder: test.order, PodInfo: decision}).Holds()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestTwoRequestsThatOverflowTogetherAreNotSmall(t *testing.T) {
	r, _ := open(t, newFixture())
	g := wants("a", nil)
	info := types.NewContainerInfo()
	for i := range 4 {
		request := types.ResourceName(fmt.Sprint("ask", i))
		info.DevRequests[request], info.AllocateFrom[request] = math.MaxInt64/2+1, memory0
	}
	g.PodInfo.RunningContainers["main"] = *info
	if _, err := r.Grant(context.Background(), g, capacity); err == nil {
		t.Error("granted 2^64 of 100")
	}
}
