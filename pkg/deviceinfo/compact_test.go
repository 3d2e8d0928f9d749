// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// gpuNode returns a node with n GPUs as a plugin reports them, in two levels, some of them
// unhealthy.
func gpuNode(n int) *types.NodeInfo {
	node := types.NewNodeInfoWithName("node-1")
	for i := range n {
		gpu := fmt.Sprintf("resource/group/gpugrp1/%d/gpugrp0/%d/gpu/GPU-%08x-aaaa-bbbb-cccc-%012x",
			i/4, i/2, i*7919, i*104729)
		for resource, quantity := range map[string]int64{"cards": 1, "memory": 80 << 30} {
			name := types.ResourceName(gpu + "/" + resource)
			node.Capacity[name] = quantity
			if i%10 != 9 {
				node.Allocatable[name] = quantity
			}
		}
	}
	node.Capacity["nvidia.com/gpu"], node.Allocatable["nvidia.com/gpu"] = int64(n), int64(n-n/10)
	return node
}

// onlyFull returns a node without empty lists, as decoding does.
func onlyFull(node *types.NodeInfo) *types.NodeInfo {
	full := &types.NodeInfo{Name: node.Name}
	for destination, list := range map[*types.ResourceList]types.ResourceList{
		&full.Capacity: node.Capacity, &full.Allocatable: node.Allocatable, &full.Used: node.Used,
	} {
		if len(list) > 0 {
			*destination = list
		}
	}
	if len(node.Scorer) > 0 {
		full.Scorer = node.Scorer
	}
	return full
}

func TestSmallNodesKeepThePublishedFormAndLargeOnesFit(t *testing.T) {
	for _, test := range []struct {
		gpus    int
		compact bool
		most    int // bytes
	}{
		{gpus: 8, most: 4 << 10},
		{gpus: 300, most: plainBytes},
		{gpus: 400, compact: true, most: plainBytes},
		{gpus: 1000, compact: true, most: plainBytes},
		{gpus: 2000, compact: true, most: MaxBytes},
	} {
		node := gpuNode(test.gpus)
		value, err := EncodeNode(node)
		if err != nil {
			t.Errorf("%d GPUs: %v", test.gpus, err)
			continue
		}
		if compact := strings.Contains(value, `"tree"`); compact != test.compact || len(value) > test.most {
			t.Errorf("%d GPUs: compact=%v, %d bytes; want compact=%v, at most %d bytes",
				test.gpus, compact, len(value), test.compact, test.most)
		}
		got, err := DecodeNode(value)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(onlyFull(node), got); diff != "" {
			t.Errorf("%d GPUs (-written +read):\n%s", test.gpus, diff)
		}
	}
}

func TestCompactFormMatchesItsDescription(t *testing.T) {
	node := &types.NodeInfo{
		Name: "n1",
		Capacity: types.ResourceList{
			"a.b/gpu": 2,
			"x/y/0":   1,
			"x/y/1/c": 3,
			"x/y/1/d": 4,
			"ill":     1,
			"z":       5,
			"z/v":     6,
		},
		Allocatable: types.ResourceList{
			"a.b/gpu": 2,
			"x/y/0":   1,
			"x/y/1/c": 2,
			"x/y/1/d": 4,
			"odd":     1,
			"z":       5,
			"z/v":     6,
		},
		Used:   types.ResourceList{"x/y/1/d": 1},
		Scorer: types.ResourceScorer{"x/y/0": 2},
	}
	got, err := encodeCompact(node)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"n1","tree":{"a.b/gpu":2,"ill":[1],"odd":[null,1],"x/y":{"0":[1,1,null,2],"1":{"c":[3,2],` +
		`"d":[4,4,1]}},"z":{"":5,"v":6}}}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestCompactFormRoundTrips(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	segments := []string{"a", "b", "a-b", "a.b", "0", "1"}
	name := func() types.ResourceName {
		path := make([]string, 1+random.IntN(5))
		for i := range path {
			path[i] = segments[random.IntN(len(segments))]
		}
		return types.ResourceName(strings.Join(path, "/"))
	}
	quantities := []int64{0, 1, 1, 2, 1<<63 - 1}
	for range 1_000 {
		node := types.NewNodeInfoWithName("n")
		for range random.IntN(12) {
			resource := name()
			for _, list := range []types.ResourceList{node.Capacity, node.Allocatable, node.Used} {
				if random.IntN(3) > 0 {
					list[resource] = quantities[random.IntN(len(quantities))]
				}
			}
			if random.IntN(4) == 0 {
				node.Scorer[resource] = random.Int32()
			}
		}
		value, err := encodeCompact(node)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeNode(value)
		if err != nil {
			t.Fatalf("%s: %v", value, err)
		}
		if diff := cmp.Diff(onlyFull(node), got); diff != "" {
			t.Fatalf("%s (-written +read):\n%s", value, diff)
		}
	}
}

func TestMalformedTreeErrorNamesTheResource(t *testing.T) {
	deep := strings.Repeat(`{"a":`, MaxNameBytes) + "1" + strings.Repeat("}", MaxNameBytes)
	var many strings.Builder
	long := strings.Repeat("a", MaxNameBytes-8)
	for i := range maxTreeNameBytes/MaxNameBytes + 100 {
		fmt.Fprintf(&many, `,"%d":1`, i)
	}
	for name, test := range map[string]struct{ value, field, problem string }{
		"no object":                         {`{"tree":1}`, "tree", "a number"},
		"a resource without a name":         {`{"tree":{"":1}}`, `tree[""]`, "empty"},
		"an empty segment":                  {`{"tree":{"a":{"/b":1}}}`, `tree["a//b"]`, "empty segment"},
		"a segment of two dots":             {`{"tree":{"a":{"..":{"b":1}}}}`, `tree["a/.."]`, `".."`},
		"a branch below an empty key":       {`{"tree":{"a":{"":{"b":1}}}}`, `tree["a"]`, "an object"},
		"a quantity that is a string":       {`{"tree":{"a":"1"}}`, `tree["a"]`, "a string"},
		"a quantity that is null":           {`{"tree":{"a":null}}`, `tree["a"]`, "null"},
		"a negative quantity":               {`{"tree":{"a":{"b":[1,-1]}}}`, `tree["a/b"]`, "negative"},
		"a scorer beyond int32":             {`{"tree":{"a":[1,1,1,2147483648]}}`, `tree["a"]`, "too large"},
		"a list that is too long":           {`{"tree":{"a":[1,1,1,1,1]}}`, `tree["a"]`, "too long"},
		"a list in a list":                  {`{"tree":{"a":[[1]]}}`, `tree["a"]`, "a list"},
		"a key twice":                       {`{"tree":{"a":1,"a":1}}`, "tree", `"a" occurs twice`},
		"a resource twice, spelled with /":  {`{"tree":{"a/b":1,"a":{"b":1}}}`, `tree["a/b"]`, "occurs twice"},
		"a resource twice, by an empty key": {`{"tree":{"a":{"b":{"":1}},"a/b":1}}`, `tree["a/b"]`, "occurs twice"},
		"a resource in the tree and a list": {`{"tree":{"a":1},"allocatable":{"a":1}}`, `tree["a"]`, "occurs twice"},
		"a resource in a list and the tree": {
			`{"scorer":{"a":1},"tree":{"a":[null,null,null,1]}}`, `tree["a"]`, "occurs twice",
		},
		"branches deeper than a name can be": {`{"tree":` + deep + `}`, "", "1025 bytes"},
		"names that are too long": {
			`{"tree":{"` + long + `":{"x":1` + many.String() + `}}}`, "tree", "more than 4194304 bytes",
		},
	} {
		_, err := DecodeNode(test.value)
		var malformed *Error
		if !errors.As(err, &malformed) || !strings.Contains(malformed.Problem, test.problem) || malformed.Fix == "" {
			t.Errorf("%s: error %v, want an *Error with %q", name, err, test.problem)
		} else if test.field != "" && malformed.Field != test.field {
			t.Errorf("%s: field %s, want %s", name, malformed.Field, test.field)
		}
	}
}

func TestCompactFormRejectsUnreadableNames(t *testing.T) {
	node := gpuNode(1000)
	node.Allocatable["gpu//cards"] = 1
	var malformed *Error
	if _, err := EncodeNode(node); !errors.As(err, &malformed) || malformed.Field != `tree["gpu//cards"]` {
		t.Errorf("error %v, want one that names the resource", err)
	}
}

func BenchmarkDecodeNodeOf1000GPUs(b *testing.B) {
	value, err := EncodeNode(gpuNode(1000))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeNode(value); err != nil {
			b.Fatal(err)
		}
	}
}
