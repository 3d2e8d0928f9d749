// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// holding returns a container that holds the quantities, each with a request whose name only a user
// would choose.
func holding(quantities map[types.ResourceName][]int64) types.ContainerInfo {
	info := types.ContainerInfo{
		Requests: types.ResourceList{"secret/0/cards": 1}, Scorer: types.ResourceScorer{"secret/0/cards": 1},
		DevRequests: types.ResourceList{}, AllocateFrom: types.ResourceLocation{},
	}
	for name, list := range quantities {
		for i, quantity := range list {
			request := types.ResourceName(fmt.Sprintf("secret%d/%s", i, name))
			info.DevRequests[request], info.AllocateFrom[request] = quantity, name
		}
	}
	return info
}

// heldBy returns the quantities that a container holds, by resource, in order.
func heldBy(info types.ContainerInfo) map[types.ResourceName][]int64 {
	held := map[types.ResourceName][]int64{}
	for request, from := range info.AllocateFrom {
		held[from] = append(held[from], info.DevRequests[request])
	}
	for _, list := range held {
		slices.Sort(list)
	}
	return held
}

func TestEncodeContainerMatchesGoldenFile(t *testing.T) {
	const gpu = "resource/group/gpugrp1/0/gpugrp0/1/gpu/GPU-a/"
	value, err := EncodeContainer(holding(map[types.ResourceName][]int64{
		gpu + "cards": {1}, gpu + "memory": {8, 5}, "resource/group/tokens": {3},
		"resource/group/numa/0/example.com~nic/0000:3b:02.1/device": {1},
	}), true)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/container.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimSpace(string(want)), value); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestContainerRoundTripsWithoutUserTexts(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	segments := []string{"a", "b", "a.b", "0", "1", "enumType"}
	for range 1_000 {
		quantities := map[types.ResourceName][]int64{}
		for range random.IntN(8) {
			path := make([]string, 1+random.IntN(5))
			for i := range path {
				path[i] = segments[random.IntN(len(segments))]
			}
			name := types.ResourceName(devicePrefix + strings.Join(path, "/"))
			quantities[name] = append(quantities[name], 1+random.Int64N(9))
			slices.Sort(quantities[name])
		}
		wantInit := random.IntN(2) == 0
		value, err := EncodeContainer(holding(quantities), wantInit)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(value, "secret") {
			t.Fatalf("the encoding contains a user's text: %s", value)
		}
		got, init, err := DecodeContainer(value)
		if err != nil {
			t.Fatalf("%s: %v", value, err)
		}
		if diff := cmp.Diff(quantities, heldBy(got)); diff != "" || init != wantInit {
			t.Fatalf("%s: init %v (-want +got):\n%s", value, init, diff)
		}
		pod := &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"c": got}}
		if _, err := EncodePod(pod); err != nil {
			t.Fatalf("%s: the checkpoint cannot have it: %v", value, err)
		}
	}
}

func TestMalformedContainerErrorNamesTheField(t *testing.T) {
	const twice = `{"devices":{"":{"gpu/0/cards":1},"gpu/0":{"cards":1}}}`
	long := `{"devices":{"` + strings.Repeat("a", MaxNameBytes) + `":{"cards":1}}}`
	for value, want := range map[string]string{
		`[]`:                                   "a list",
		`{"init":1}`:                           "init: it is a number",
		`{"devices":{"gpu/0":{"cards":0}}}`:    `devices["resource/group/gpu/0/cards"]: it has no quantity`,
		`{"devices":{"gpu/0":{"cards":"1"}}}`:  "a string",
		`{"devices":{"gpu/0":{"cards":[[]]}}}`: `a list`,
		`{"devices":{"gpu/..":{"cards":1}}}`:   `".."`,
		`{"devices":{"gpu//0":{"cards":1}}}`:   "empty segment",
		twice:                                  "occurs twice",
		long:                                   "bytes long",
	} {
		_, _, err := DecodeContainer(value)
		var malformed *Error
		if !errors.As(err, &malformed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: error %v, want an *Error with %q", value, err, want)
		}
	}
	for name, container := range map[string]types.ContainerInfo{
		"a device without a quantity": {AllocateFrom: types.ResourceLocation{"a": "resource/group/gpu/0/cards"}},
		"a name of no device": {
			AllocateFrom: types.ResourceLocation{"a": "nvidia.com/gpu"}, DevRequests: types.ResourceList{"a": 1},
		},
	} {
		var malformed *Error
		if _, err := EncodeContainer(container, false); !errors.As(err, &malformed) {
			t.Errorf("%s is written: %v", name, err)
		}
	}
}

func TestTooManyDevicesErrorNamesTheContainer(t *testing.T) {
	devices := func(n, length int) types.ContainerInfo {
		quantities := map[types.ResourceName][]int64{}
		for i := range n {
			id := fmt.Sprintf("%0*d", length, i)
			quantities[types.ResourceName("resource/group/gpu/"+id+"/cards")] = []int64{1}
		}
		return holding(quantities)
	}
	eightGPUs := map[types.ResourceName][]int64{}
	for i := range 16 {
		gpu := fmt.Sprintf("resource/group/gpugrp1/%d/gpugrp0/%d/gpu/GPU-%08d-aaaa-bbbb-cccc-%012d/", i/8, i/2, i, i)
		eightGPUs[types.ResourceName(gpu+"cards")] = []int64{1}
		eightGPUs[types.ResourceName(gpu+"memory")] = []int64{80 << 30}
	}
	for name, test := range map[string]struct {
		container types.ContainerInfo
		fits      bool
	}{
		"nothing":                             {types.ContainerInfo{}, true},
		"sixteen GPUs with cards and memory":  {holding(eightGPUs), true},
		"a hundred virtual functions":         {devices(100, 40), true},
		"two hundred of them":                 {devices(200, 40), false},
		"a few with names as long as allowed": {devices(9, 900), false},
	} {
		for _, init := range []bool{false, true} {
			containers := map[string]types.ContainerInfo{"other": {}, "main": test.container}
			pod := &types.PodInfo{RunningContainers: containers}
			if init {
				pod = &types.PodInfo{InitContainers: containers}
			}
			err := CheckContainers(pod)
			value, encodeErr := EncodeContainer(test.container, init)
			if encodeErr != nil || test.fits != (len(value) <= MaxEncodedBytes) {
				t.Errorf("%s: %d bytes, %v", name, len(value), encodeErr)
			}
			if (err == nil) != test.fits {
				t.Errorf("%s: %v, want fits=%v", name, err, test.fits)
			}
			if err == nil {
				continue
			}
			for _, want := range []string{`["main"]`, fmt.Sprint(len(value)), fmt.Sprint(MaxEncodedBytes)} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: the error does not have %q: %v", name, want, err)
				}
			}
		}
	}
}

func FuzzDecodeContainer(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"init":true,"devices":{"gpugrp0/0/gpu/GPU-a":{"cards":1,"memory":[5,3]}}}`,
		`{"devices":{"":{"tokens":3}}}`, `{"devices":{"gpu/0":{"cards":[]}},"later":{}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		info, init, err := DecodeContainer(value)
		if err != nil {
			var malformed *Error
			if !errors.As(err, &malformed) {
				t.Fatalf("error %v, want an *Error", err)
			}
			return
		}
		written, err := EncodeContainer(info, init)
		if err != nil {
			t.Fatalf("%q cannot be written: %v", value, err)
		}
		again, initAgain, err := DecodeContainer(written)
		if err != nil || init != initAgain || !cmp.Equal(heldBy(info), heldBy(again)) {
			t.Fatalf("%q becomes %q: %v", value, written, err)
		}
	})
}
