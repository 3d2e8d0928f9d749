// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
)

func TestSharesOfAPodAreOfDistinctGPUs(t *testing.T) {
	shared := []string{ // three shares of each of four GPUs, two on each NUMA node
		"gpu 0 a::0", "gpu 0 a::1", "gpu 0 a::2", "gpu 0 b::0", "gpu 0 b::1", "gpu 0 b::2",
		"gpu 1 c::0", "gpu 1 c::1", "gpu 1 c::2", "gpu 1 d::0", "gpu 1 d::1", "gpu 1 d::2",
	}
	for name, test := range map[string]struct {
		taken list
		pod   []ask
		want  map[string]string
	}{
		"two of one container": {
			pod:  []ask{{limits: list{gpu: 2}}},
			want: map[string]string{"main": "gpu 0 a::0, gpu 0 b::0"},
		},
		"one of each of two containers": {
			pod:  []ask{{name: "a", limits: list{gpu: 1}}, {name: "b", limits: list{gpu: 1}}},
			want: map[string]string{"a": "gpu 0 a::0", "b": "gpu 0 b::0"},
		},
		"more than one NUMA node has GPUs": {
			pod:  []ask{{limits: list{gpu: 3}}},
			want: map[string]string{"main": "gpu 0 a::0, gpu 0 b::0, gpu 1 c::0"},
		},
		"more than there are GPUs": {
			pod: []ask{{limits: list{gpu: 5}}},
			want: map[string]string{
				"main": "gpu 0 a::0, gpu 0 a::1, gpu 0 b::0, gpu 0 b::1, gpu 1 c::0",
			},
		},
		"the GPU of which others have the least comes first": {
			taken: list{gpu: 1}, pod: []ask{{limits: list{gpu: 1}}},
			want: map[string]string{"main": "gpu 0 b::0"},
		},
		"also on another NUMA node": {
			taken: list{gpu: 2}, pod: []ask{{limits: list{gpu: 1}}},
			want: map[string]string{"main": "gpu 1 c::0"},
		},
		"even if that is one more": {
			taken: list{gpu: 1}, pod: []ask{{limits: list{gpu: 3}}},
			want: map[string]string{"main": "gpu 0 b::0, gpu 1 c::0, gpu 1 d::0"},
		},
		"by placeholders": {
			pod:  []ask{{requests: list{"numa/A/nvidia.com:gpu": 2}}},
			want: map[string]string{"main": "gpu 0 a::0, gpu 0 b::0"},
		},
		"beside one by its ID": {
			pod:  []ask{{limits: list{gpu: 2}, requests: list{"numa/A/nvidia.com:gpu/=a::1/device": 1}}},
			want: map[string]string{"main": "gpu 0 a::1, gpu 0 b::0"},
		},
		"an init container has what the others will have": {
			pod: []ask{
				{name: "i", kind: grouptree.Init, limits: list{gpu: 2}}, {name: "m", limits: list{gpu: 2}},
			},
			want: map[string]string{"i": "gpu 0 a::0, gpu 0 b::0", "m": "gpu 0 a::0, gpu 0 b::0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, shared...)
			if test.taken != nil {
				w.run(request("before", ask{limits: test.taken}))
			}
			if diff := cmp.Diff(test.want, w.run(request("p", test.pod...))); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNoPodHasMoreSharesOfAGPUThanItMust compares pods of several containers, on random nodes where
// others have shares, with the least that any choice has: the most shares of one GPU.
func TestNoPodHasMoreSharesOfAGPUThanItMust(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	spread := 0
	for range 300 {
		var devices, taken []string
		free := map[string]int{}
		for board := range 1 + random.IntN(4) {
			id := fmt.Sprint("g", board)
			for share := range 1 + random.IntN(4) {
				device := fmt.Sprintf("gpu %d %s::%d", board%2, id, share)
				devices = append(devices, device)
				if random.IntN(3) == 0 {
					taken = append(taken, device)
				} else {
					free[id]++
				}
			}
		}
		w := newFixture(t, devices...)
		if len(taken) > 0 {
			byID := list{}
			for _, device := range taken {
				words := strings.Fields(device)
				byID[deviceName(t, words[0]+" ="+words[1]+" ="+words[2])] = 1
			}
			w.run(request("before", ask{requests: byID}))
		}
		total := 0
		for _, n := range free {
			total += n
		}
		var asks []ask
		left := total
		for i := range 1 + random.IntN(3) {
			if left == 0 {
				break
			}
			n := 1 + random.IntN(left)
			asks, left = append(asks, ask{name: fmt.Sprint("c", i), limits: list{gpu: int64(n)}}), left-n
		}
		if len(asks) == 0 {
			continue
		}
		has, most := map[string]int{}, 0
		for _, given := range w.run(request("p", asks...)) {
			for _, device := range strings.Split(given, ", ") {
				board, _, _ := strings.Cut(strings.Fields(device)[2], "::")
				has[board]++
				most = max(most, has[board])
			}
		}
		if least := leastMost(free, total-left); most != least {
			t.Errorf("%v of %v: %d shares of one GPU, %v; there is a way with %d", asks, free, most, has, least)
		} else if len(has) > 1 {
			spread++
		}
	}
	if spread < 100 {
		t.Errorf("only %d pods had shares of several GPUs", spread)
	}
}

// leastMost returns how many shares of one GPU a pod with n shares has at least, by trying.
func leastMost(free map[string]int, n int) int {
	for most := 0; ; most++ {
		enough := 0
		for _, shares := range free {
			enough += min(shares, most)
		}
		if enough >= n {
			return most
		}
	}
}
