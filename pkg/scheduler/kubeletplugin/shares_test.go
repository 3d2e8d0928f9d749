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

func TestSharesOfAPodComeFromDistinctGPUs(t *testing.T) {
	shared := []string{ // three shares of each of four GPUs, two on each NUMA node
		"gpu 0 a::0", "gpu 0 a::1", "gpu 0 a::2", "gpu 0 b::0", "gpu 0 b::1", "gpu 0 b::2",
		"gpu 1 c::0", "gpu 1 c::1", "gpu 1 c::2", "gpu 1 d::0", "gpu 1 d::1", "gpu 1 d::2",
	}
	for name, test := range map[string]struct {
		taken list
		pod   []spec
		want  map[string]string
	}{
		"two of one container": {
			pod:  []spec{{limits: list{gpu: 2}}},
			want: map[string]string{"main": "gpu 0 a::0, gpu 0 b::0"},
		},
		"one of each of two containers": {
			pod:  []spec{{name: "a", limits: list{gpu: 1}}, {name: "b", limits: list{gpu: 1}}},
			want: map[string]string{"a": "gpu 0 a::0", "b": "gpu 0 b::0"},
		},
		"more than one NUMA node has GPUs": {
			pod:  []spec{{limits: list{gpu: 3}}},
			want: map[string]string{"main": "gpu 0 a::0, gpu 0 b::0, gpu 1 c::0"},
		},
		"more than there are GPUs": {
			pod: []spec{{limits: list{gpu: 5}}},
			want: map[string]string{
				"main": "gpu 0 a::0, gpu 0 a::1, gpu 0 b::0, gpu 0 b::1, gpu 1 c::0",
			},
		},
		"the GPU with the fewest shares held by others comes first": {
			taken: list{gpu: 1}, pod: []spec{{limits: list{gpu: 1}}},
			want: map[string]string{"main": "gpu 0 b::0"},
		},
		"also on another NUMA node": {
			taken: list{gpu: 2}, pod: []spec{{limits: list{gpu: 1}}},
			want: map[string]string{"main": "gpu 1 c::0"},
		},
		"even if that takes one more": {
			taken: list{gpu: 1}, pod: []spec{{limits: list{gpu: 3}}},
			want: map[string]string{"main": "gpu 0 b::0, gpu 1 c::0, gpu 1 d::0"},
		},
		"by placeholders": {
			pod:  []spec{{requests: list{"numa/A/nvidia.com:gpu": 2}}},
			want: map[string]string{"main": "gpu 0 a::0, gpu 0 b::0"},
		},
		"next to one by its ID": {
			pod:  []spec{{limits: list{gpu: 2}, requests: list{"numa/A/nvidia.com:gpu/=a::1/device": 1}}},
			want: map[string]string{"main": "gpu 0 a::1, gpu 0 b::0"},
		},
		"an init container has what the others will have": {
			pod: []spec{
				{name: "i", kind: grouptree.Init, limits: list{gpu: 2}}, {name: "m", limits: list{gpu: 2}},
			},
			want: map[string]string{"i": "gpu 0 a::0, gpu 0 b::0", "m": "gpu 0 a::0, gpu 0 b::0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, shared...)
			if test.taken != nil {
				w.run(requestOf("before", spec{limits: test.taken}))
			}
			if diff := cmp.Diff(test.want, w.run(requestOf("p", test.pod...))); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		})
	}
}

// Pods of several containers come to random nodes where other pods hold shares. An exhaustive
// search finds the least possible maximum of shares of one GPU.
func TestSpreadsSharesOverAsManyGPUsAsPossible(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	spread := 0
	for range 300 {
		var gpus, taken []string
		free := map[string]int{}
		for board := range 1 + random.IntN(4) {
			id := fmt.Sprint("g", board)
			for share := range 1 + random.IntN(4) {
				device := fmt.Sprintf("gpu %d %s::%d", board%2, id, share)
				gpus = append(gpus, device)
				if random.IntN(3) == 0 {
					taken = append(taken, device)
				} else {
					free[id]++
				}
			}
		}
		w := newFixture(t, gpus...)
		if len(taken) > 0 {
			byID := list{}
			for _, device := range taken {
				fields := strings.Fields(device)
				byID[deviceName(t, fields[0]+" ="+fields[1]+" ="+fields[2])] = 1
			}
			w.run(requestOf("before", spec{requests: byID}))
		}
		total := 0
		for _, n := range free {
			total += n
		}
		var specs []spec
		left := total
		for i := range 1 + random.IntN(3) {
			if left == 0 {
				break
			}
			n := 1 + random.IntN(left)
			specs, left = append(specs, spec{name: fmt.Sprint("c", i), limits: list{gpu: int64(n)}}), left-n
		}
		if len(specs) == 0 {
			continue
		}
		has, most := map[string]int{}, 0
		for _, gpus := range w.run(requestOf("p", specs...)) {
			for _, device := range strings.Split(gpus, ", ") {
				board, _, _ := strings.Cut(strings.Fields(device)[2], "::")
				has[board]++
				most = max(most, has[board])
			}
		}
		if least := leastMost(free, total-left); most != least {
			t.Errorf("%v of %v: %d shares of one GPU, %v; there is a way with %d", specs, free, most, has, least)
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
