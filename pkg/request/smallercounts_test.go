// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestOnlyCountsBelowThoseOfTheLimitsAreSmaller(t *testing.T) {
	pod := &types.PodInfo{
		InitContainers: map[string]types.ContainerInfo{"i": {
			Requests:     types.ResourceList{"nvidia.com/gpu": 2},
			KubeRequests: types.ResourceList{"nvidia.com/gpu": 3},
		}},
		RunningContainers: map[string]types.ContainerInfo{"main": {
			Requests: types.ResourceList{
				"a.example/smaller": 1, "b.example/equal": 2, "c.example/larger": 3, "d.example/alone": 1,
				"e.example/none": 0, "gpu/a/cards": 1, "gpu/gpu-generate-topology": 1,
			},
			KubeRequests: types.ResourceList{
				"a.example/smaller": 2, "b.example/equal": 2, "c.example/larger": 2, "e.example/none": 2,
			},
		}},
	}
	var fields []string
	for _, mistake := range smallerCounts(pod) {
		fields = append(fields, mistake.Field)
	}
	want := []string{
		`initcontainer["i"].requests["nvidia.com/gpu"]`, `runningcontainer["main"].requests["a.example/smaller"]`,
	}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOnlyPathsAndCountsAreForDevices(t *testing.T) {
	got := ForDevices(types.ResourceList{
		"gpu/a/cards": 1, "resource/group/gpu/b/cards": 1, "nvidia.com/gpu": 2, "resource/group/tokens": 3,
		"gpu/gpu-generate-topology": 1, "resource/group/gpu/gpu-generate-topology": 1,
		"numa/A/vendor.example:nic/=eth0/device": 0, "example.com/none": 0,
		"gpu/c/cards": 1, "resource/group/gpu/c/cards": 0,
	}, IsCount)
	want := []types.ResourceName{"gpu/a/cards", "nvidia.com/gpu", "resource/group/gpu/b/cards", "resource/group/tokens"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
