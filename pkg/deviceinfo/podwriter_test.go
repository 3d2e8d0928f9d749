// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"math/rand/v2"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// A pod is valid if and only if DecodePod accepts its JSON, which EncodePod writes.
func TestValidPodsRoundTrip(t *testing.T) {
	seen := map[bool]int{}
	for seed := range uint64(20000) {
		r := rand.New(rand.NewPCG(seed, 0))
		name := func() string {
			if r.IntN(60) > 0 {
				return []string{"a", "gpu/0/cards", "resource/group/gpu/GPU-1/memory", "x.y-z", "<&>"}[r.IntN(5)]
			}
			return []string{
				"", "/a", "a/", "a//b", "a/../b", "a b", "ü", "\xff", "\"", "\\", string(make([]byte, 3)),
				string(make([]rune, MaxNameBytes+1)),
			}[r.IntN(12)]
		}
		quantity := func() int64 {
			if r.IntN(60) > 0 {
				return r.Int64()
			}
			return -r.Int64N(3)
		}
		list := func() types.ResourceList {
			list := types.ResourceList{}
			for range r.IntN(3) {
				list[types.ResourceName(name())] = quantity()
			}
			return list
		}
		containers := func() map[string]types.ContainerInfo {
			containers := map[string]types.ContainerInfo{}
			for range r.IntN(3) {
				info := types.ContainerInfo{
					Requests:     list(),
					DevRequests:  list(),
					AllocateFrom: types.ResourceLocation{},
					Scorer:       types.ResourceScorer{},
				}
				for range r.IntN(3) {
					info.AllocateFrom[types.ResourceName(name())] = types.ResourceName(name())
					info.Scorer[types.ResourceName(name())] = int32(quantity())
				}
				containers[name()] = info
			}
			return containers
		}
		pod := &types.PodInfo{
			Name:              name(),
			NodeName:          name(),
			Requests:          list(),
			InitContainers:    containers(),
			RunningContainers: containers(),
		}
		value, err := encode(pod)
		if err != nil {
			t.Fatal(err)
		}
		_, err = DecodePod(value)
		if got := valid(pod); got != (err == nil) {
			t.Fatalf("seed %d: valid is %t, but DecodePod of %s returns: %v", seed, got, value, err)
		}
		seen[err == nil]++
		written, err := EncodePod(pod)
		if (err == nil) != valid(pod) || err == nil && written != value {
			t.Fatalf("seed %d: written is %s (error %v), want %s", seed, written, err, value)
		}
	}
	if seen[true] < 1000 || seen[false] < 1000 {
		t.Errorf("%d valid pods and %d others: the test tries too few of one kind", seen[true], seen[false])
	}
}
