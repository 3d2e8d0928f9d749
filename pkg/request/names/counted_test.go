// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestPartsOfEachKindOfDevicesHaveNamesThatQuotasCount(t *testing.T) {
	long := types.ResourceName("vendor.example/" + strings.Repeat("x", 57))
	for devices, want := range map[types.ResourceName][]Counted{
		"nvidia.com/gpu": {{"nvidia.com/gpumem", "memory", 1 << 20}, {"nvidia.com/gpucores", "cores", 1}},
		"example.com/gpu": {
			{"example.com/gpu.memory", "memory", 1 << 20}, {"example.com/gpu.cores", "cores", 1},
		},
		long:       {{long + ".cores", "cores", 1}},
		long + "x": {},
	} {
		if diff := cmp.Diff(want, CountedParts(devices)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", devices, diff)
		}
	}
}
