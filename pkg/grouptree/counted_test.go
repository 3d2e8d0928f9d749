// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// cards returns how many cards a container requests.
func cards(info types.ContainerInfo) (n int64) {
	for name, quantity := range info.DevRequests {
		if strings.HasSuffix(string(name), "/cards") {
			n += quantity
		}
	}
	return n
}

// counted returns how many cards Kubernetes counts for the pod: each init container with the
// sidecars before it, and all that goes on running.
func (s *scenario) counted() (count int64) {
	var sidecars, running int64
	for _, member := range s.spec {
		if info, ok := s.pod.InitContainers[member.Name]; ok {
			count = max(count, cards(info)+sidecars)
			continue
		}
		running += cards(s.pod.RunningContainers[member.Name])
		if member.Kind == Sidecar {
			sidecars += cards(s.pod.RunningContainers[member.Name])
		}
	}
	return max(count, running)
}

// holds returns how many cards the pod holds with a placement.
func (s *scenario) holds(where location) (n int64) {
	for name, quantity := range s.peak(where) {
		if strings.HasSuffix(string(name), "/cards") {
			n += quantity
		}
	}
	return n
}

// bestCounted is best among the placements by which the pod holds no more cards than Kubernetes
// counts.
func (o *oracle) bestCounted() (score float64, where location, complete bool) {
	score = math.Inf(-1)
	count := o.s.counted()
	complete = o.each(func() bool {
		place := o.where()
		if o.s.holds(place) <= count && o.s.shortage(place) == "" {
			if got := o.s.score(place); got > score+1e-9 {
				score, where = got, place
			}
		}
		return true
	})
	return score, where, complete
}

// A pod holds no more than Kubernetes counts for it if any placement allows that. If the walk finds
// none, the exact search finds the one with the highest score, and of those the first by name.
func TestOracleFindsNoPodThatHoldsMoreThanKubernetesCounts(t *testing.T) {
	placer := NewPlacer(0)
	checked, searched, exceeds := 0, 0, 0
	for seed := *oracleSeed; checked < *oracleCases; seed++ {
		s := randomScenario(rand.New(rand.NewPCG(2, seed)))
		if len(s.pod.InitContainers) == 0 {
			continue
		}
		score, where, complete := newOracle(s).bestCounted()
		if !complete {
			continue
		}
		checked++
		tree, req := mustTree(t, &s.node), mustRequest(t, &s.pod, s.spec)
		got := placer.Place(tree, tree.Dense(s.node.Used), req)
		if !got.Fits {
			if where != nil {
				t.Fatalf("does not fit, the oracle finds %v\nnode: %v\npod: %v", where, s.node, s.pod)
			}
			continue
		}
		checkValid(t, s, tree, req, got)
		placed := locations(s, tree, req, got)
		if held := s.holds(placed); held > s.counted() != got.Exceeds {
			t.Fatalf("the pod holds %d, Kubernetes counts %d, exceeds is %v\nnode: %v\npod: %v", held, s.counted(),
				got.Exceeds, s.node, s.pod)
		}
		if where == nil {
			exceeds++
			continue
		}
		if got.Exceeds {
			t.Fatalf("the pod holds %d, Kubernetes counts %d\nnode: %v\npod: %v\nspec: %v\noracle: %v", s.holds(placed),
				s.counted(), s.node, s.pod, s.spec, where)
		}
		if !got.Exact {
			continue
		}
		searched++
		if math.Abs(got.Score-score) > 2e-9 {
			t.Fatalf("score %v, the oracle finds %v\nnode: %v\npod: %v", got.Score, score, s.node, s.pod)
		}
		if diff := cmp.Diff(where, placed); diff != "" && math.Abs(got.Score-score) < 1e-12 {
			t.Fatalf("not the first by name (-oracle +search):\n%s\nnode: %v\npod: %v", diff, s.node, s.pod)
		}
	}
	t.Logf("%d cases checked, %d searched; in %d no placement is within the count", checked, searched, exceeds)
	if searched < checked/100 {
		t.Error("the random cases are not varied enough")
	}
}

// podOf returns a pod whose containers request so many cards, those of each in one pair if that is
// two.
func podOf(spec []Container, counts ...int) types.PodInfo {
	pod := *types.NewPodInfo()
	for i, member := range spec {
		info := types.ContainerInfo{DevRequests: types.ResourceList{}}
		for d := range counts[i] {
			info.DevRequests[types.ResourceName(fmt.Sprintf("resource/group/pair/0/gpu/%d/cards", d))] = 1
		}
		if member.Kind == Init {
			pod.InitContainers[member.Name] = info
		} else {
			pod.RunningContainers[member.Name] = info
		}
	}
	return pod
}

func TestAPodOfInitContainersAndSidecarsHoldsWhatKubernetesCounts(t *testing.T) {
	node := types.NodeInfo{Allocatable: types.ResourceList{}}
	for d := range 8 {
		node.Allocatable[types.ResourceName(fmt.Sprintf("resource/group/pair/%d/gpu/%d/cards", d/2, d))] = 1
	}
	tests := map[string]struct {
		kinds  []Kind
		counts []int
		want   int64
	}{
		"init, sidecar, init of a pair, main":  {[]Kind{Init, Sidecar, Init, Regular}, []int{1, 1, 2, 1}, 3},
		"sidecar, init of a pair, two mains":   {[]Kind{Sidecar, Init, Regular, Regular}, []int{1, 2, 1, 1}, 3},
		"an init of a pair and two mains":      {[]Kind{Init, Regular, Regular}, []int{2, 1, 1}, 2},
		"two sidecars around inits of a pair":  {[]Kind{Sidecar, Init, Sidecar, Init}, []int{1, 2, 1, 2}, 4},
		"sidecars alone, whose init is before": {[]Kind{Init, Sidecar, Sidecar}, []int{2, 1, 1}, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var spec []Container
			for i, kind := range test.kinds {
				spec = append(spec, Container{Name: string(rune('a' + i)), Kind: kind})
			}
			s := &scenario{node: node, pod: podOf(spec, test.counts...), spec: spec}
			if count := s.counted(); count != test.want {
				t.Fatalf("Kubernetes counts %d, want %d", count, test.want)
			}
			tree, req := mustTree(t, &s.node), mustRequest(t, &s.pod, spec)
			got := NewPlacer(0).Place(tree, make([]int64, tree.Len()), req)
			checkValid(t, s, tree, req, got)
			if held := s.holds(locations(s, tree, req, got)); held != test.want || got.Exceeds {
				t.Errorf("holds %d, exceeds is %v; Kubernetes counts %d", held, got.Exceeds, test.want)
			}
		})
	}
}

// Some of the recorded placements of the published allocator hold more than Kubernetes counts: it
// did not know the order of the containers. With that order these pods are placed otherwise.
func TestPublishedPlacementsThatHoldTooMuchArePlacedOtherwiseInTheOrderOfTheSpec(t *testing.T) {
	placer := NewPlacer(0)
	var others []int
	for _, c := range readPublished(t) {
		var spec []Container
		for name := range c.Pod.InitContainers {
			spec = append(spec, Container{Name: name, Kind: Init})
		}
		for name := range c.Pod.RunningContainers {
			spec = append(spec, Container{Name: name})
		}
		tree := mustTree(t, &c.Node)
		got := placer.Place(tree, tree.Dense(c.Node.Used), mustRequest(t, &c.Pod, spec))
		if c.Published.Fits && (!got.Fits || got.Exact) {
			others = append(others, c.ID)
		}
	}
	if want := []int{375, 1230, 1358, 2105, 2905}; !slices.Equal(others, want) {
		t.Errorf("placed otherwise: %v, want %v", others, want)
	}
}
