// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
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
