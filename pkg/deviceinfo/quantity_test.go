// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestRequestsAreQuantitiesAsKubernetesWritesThem(t *testing.T) {
	for written, want := range map[string]int64{
		`20480`: 20480, `"20480"`: 20480, `"20Gi"`: 20 << 30, `"512Mi"`: 512 << 20, `"1.5Gi"`: 3 << 29, `"2k"`: 2000,
		`"1e3"`: 1000, `"0"`: 0, `9223372036854775807`: 1<<63 - 1, `"7Ei"`: 7 << 60, `"3000m"`: 3,
	} {
		for _, value := range []string{
			`{"requests":{"gpu/a/memory":` + written + `}}`,
			`{"runningcontainer":{"main":{"requests":{"gpu/a/memory":` + written + `}}}}`,
			`{"initcontainer":{"main":{"requests":{"gpu/a/memory":` + written + `}}}}`,
		} {
			pod, err := DecodePod(value)
			if err != nil {
				t.Errorf("%s: %v", value, err)
				continue
			}
			got := pod.Requests["gpu/a/memory"]
			for _, container := range pod.Containers() {
				got = container.Requests["gpu/a/memory"]
			}
			if got != want {
				t.Errorf("%s: %d, want %d", value, got, want)
			}
			again, err := EncodePod(pod)
			if err != nil || strings.Contains(again, `"`+strings.Trim(written, `"`)+`"`) {
				t.Errorf("%s is published as %s, %v: want a plain number", value, again, err)
			}
		}
	}
}

func TestErrorsOfQuantitiesShowTheRightForm(t *testing.T) {
	for written, want := range map[string]string{
		`"20 Gi"`: `"20 Gi" is no quantity`, `"20GB"`: `"20GB" is no quantity`, `"all"`: `"all" is no quantity`,
		`""`: `"" is no quantity`, `"-1Gi"`: `"-1Gi" is negative`, `"8Ei"`: `"8Ei" is too large`,
		`"1e40"`: "is too large",
		`"500m"`: `"500m" is not a whole number of base units`, `"0.1"`: "is not a whole number of base units",
		`"` + strings.Repeat("0", 65) + `"`: "is too long for a quantity",
	} {
		_, err := DecodePod(`{"runningcontainer":{"main":{"requests":{"gpu/a/memory":` + written + `}}}}`)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"20Gi"`) ||
			!strings.Contains(err.Error(), `runningcontainer["main"].requests["gpu/a/memory"]`) {
			t.Errorf("%s: %v, want %q, the field, and what to write", written, err, want)
		}
	}
}

// Allocations and inventories are written by programs: their contract is plain numbers.
func TestOnlyRequestsMayBeQuantities(t *testing.T) {
	for _, value := range []string{
		`{"runningcontainer":{"main":{"devrequests":{"resource/group/gpu/a/memory":"20Gi"}}}}`,
		`{"runningcontainer":{"main":{"scorer":{"gpu/a/memory":"1"}}}}`,
	} {
		if _, err := DecodePod(value); err == nil {
			t.Errorf("%s is accepted", value)
		}
	}
	if _, err := DecodeNode(`{"capacity":{"resource/group/gpu/a/memory":"20Gi"}}`); err == nil {
		t.Error("a node's inventory may have a quantity")
	}
	pod, err := EncodePod(&types.PodInfo{Requests: types.ResourceList{"gpu/a/memory": 20 << 30}})
	if want := `{"requests":{"gpu/a/memory":21474836480}}`; err != nil || !strings.Contains(pod, want[1:]) {
		t.Errorf("%s, %v, want %s", pod, err, want)
	}
}
