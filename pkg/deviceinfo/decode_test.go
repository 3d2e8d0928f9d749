// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestDecodePodReadsWhatUsersWrite(t *testing.T) {
	for name, test := range map[string]struct {
		value string
		want  types.PodInfo
	}{
		"nothing": {`{}`, types.PodInfo{}},
		"the published example": {
			`{"runningcontainer":{"tfcont":{"requests":{"gpu/gpu-generate-topology":1}}}}`,
			types.PodInfo{
				RunningContainers: map[string]types.ContainerInfo{
					"tfcont": {Requests: types.ResourceList{"gpu/gpu-generate-topology": 1}},
				},
			},
		},
		"spaces and lines between": {
			" {\n\t\"requests\" : { \"gpu/x\" : 2 }\r\n}\n",
			types.PodInfo{Requests: types.ResourceList{"gpu/x": 2}},
		},
		"everything": {
			`{"podname":"p","nodename":"n","requests":{"a":1},` +
				`"initcontainer":{"i":{"devrequests":{"resource/group/gpu/a/cards":1}}},` +
				`"runningcontainer":{"r":{"requests":{"b":9223372036854775807},"allocatefrom":{"x/y":"u/v"},` +
				`"scorer":{"b":2}}}}`,
			types.PodInfo{
				Name: "p", NodeName: "n", Requests: types.ResourceList{"a": 1},
				InitContainers: map[string]types.ContainerInfo{
					"i": {DevRequests: types.ResourceList{"resource/group/gpu/a/cards": 1}},
				},
				RunningContainers: map[string]types.ContainerInfo{"r": {
					Requests:     types.ResourceList{"b": 9223372036854775807},
					AllocateFrom: types.ResourceLocation{"x/y": "u/v"}, Scorer: types.ResourceScorer{"b": 2},
				}},
			},
		},
		"fields of a later release are ignored": {
			`{"seal":{"key":[1,2,{"a":"a"}]},"runningcontainer":{"r":{"profile":"x","requests":{"a":1}}}}`,
			types.PodInfo{
				RunningContainers: map[string]types.ContainerInfo{"r": {Requests: types.ResourceList{"a": 1}}},
			},
		},
		"keys in another case are unknown": {
			`{"NodeName":"n","Requests":{"a":1},"nodeName":"n","requeſts":{"a":1}}`,
			types.PodInfo{},
		},
		"null stands for absent": {
			`{"podname":null,"requests":null,"initcontainer":null,"runningcontainer":{"r":null}}`,
			types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"r": {}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := DecodePod(test.value)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&test.want, got); diff != "" {
				t.Errorf("decoded (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMalformedPodErrorNamesTheField(t *testing.T) {
	long := strings.Repeat("a", MaxNameBytes+1)
	request := func(name string) string {
		return fmt.Sprintf(`{"runningcontainer":{"r":{"requests":{%q:1}}}}`, name)
	}
	number := func(literal string) string {
		return fmt.Sprintf(`{"runningcontainer":{"r":{"requests":{"gpu/a/cards":%s}}}}`, literal)
	}
	const field = `runningcontainer["r"].requests`
	for name, test := range map[string]struct {
		value, field, problem string
	}{
		"nothing at all":   {``, "", "not JSON"},
		"not JSON":         {`{"a":`, "", "not JSON"},
		"a comma too many": {`{"requests":{"a":1,}}`, "", "not JSON"},
		"two values":       {`{}{}`, "", "not JSON"},
		"null":             {`null`, "", "null"},
		"a list":           {`[]`, "", "a list"},
		"a string":         {`"nodename"`, "", "a string"},
		"not UTF-8":        {"{\"a\":\"\xff\"}", "", "UTF-8"},
		"too large":        {strings.Repeat(" ", MaxBytes) + "{}", "", "262146 bytes"},
		"a key twice":      {`{"requests":{"a":1},"requests":{"b":1}}`, "", `"requests" occurs twice`},
		"a key twice, once escaped": {
			`{"requests":{"a":1},"request\u0073":{"b":1}}`, "", `"requests" occurs twice`,
		},
		"an unknown key twice": {`{"x":1,"x":2}`, "", `"x" occurs twice`},
		"a container twice": {
			`{"runningcontainer":{"r":{},"r":{}}}`, "runningcontainer", `"r" occurs twice`,
		},
		"a resource twice": {
			`{"runningcontainer":{"r":{"requests":{"a":1,"a":1}}}}`, field, `"a" occurs twice`,
		},
		"a container is a number":         {`{"runningcontainer":{"r":1}}`, `runningcontainer["r"]`, "a number"},
		"containers are a list":           {`{"initcontainer":[]}`, "initcontainer", "a list"},
		"the node's name is true":         {`{"nodename":true}`, "nodename", "true or false"},
		"the node's name has a line":      {`{"nodename":"a\nb"}`, "nodename", `'\n'`},
		"a container without name":        {`{"runningcontainer":{"":{}}}`, `runningcontainer[""]`, "empty"},
		"a resource without name":         {request(""), field + `[""]`, "empty"},
		"a name too long":                 {request(long), field + `["` + long[:80] + `"…]`, "1025 bytes"},
		"a name with ..":                  {request("gpu/../cards"), field + `["gpu/../cards"]`, `".."`},
		"a name with a space":             {request("gpu/a b/cards"), field + `["gpu/a b/cards"]`, `' '`},
		"a name with a control character": {`{"requests":{"gpu/\u0007":1}}`, `requests["gpu/\a"]`, `'\a'`},
		"a name with a quote":             {`{"requests":{"gpu/\"":1}}`, `requests["gpu/\""]`, `'"'`},
		"a name with a Kelvin sign":       {`{"requests":{"gpu/K":1}}`, "requests[\"gpu/K\"]", "'K'"},
		"a name with an empty segment":    {request("gpu//cards"), field + `["gpu//cards"]`, "empty segment"},
		"a name that begins with a slash": {request("/gpu"), field + `["/gpu"]`, "empty segment"},
		"a name that ends with a slash":   {request("gpu/"), field + `["gpu/"]`, "empty segment"},
		"a negative quantity":             {number("-1"), field + `["gpu/a/cards"]`, "negative"},
		"a far too negative quantity":     {number("-9223372036854775809"), field + `["gpu/a/cards"]`, "negative"},
		"a quantity beyond int64":         {number("9223372036854775808"), field + `["gpu/a/cards"]`, "too large"},
		"a quantity with a point":         {number("1.0"), field + `["gpu/a/cards"]`, "whole number"},
		"a quantity with an exponent":     {number("1e3"), field + `["gpu/a/cards"]`, "whole number"},
		"a quantity in other units":       {number(`"1 GB"`), field + `["gpu/a/cards"]`, "no quantity"},
		"a quantity that is null":         {number("null"), field + `["gpu/a/cards"]`, "null"},
		"a scorer beyond int32": {
			`{"runningcontainer":{"r":{"scorer":{"a":2147483648}}}}`, `runningcontainer["r"].scorer["a"]`, "too large",
		},
		"a location that is a number": {
			`{"runningcontainer":{"r":{"allocatefrom":{"a":1}}}}`, `runningcontainer["r"].allocatefrom["a"]`,
			"a number",
		},
		"a location with ..": {
			`{"runningcontainer":{"r":{"allocatefrom":{"a":"../../dev/sda"}}}}`,
			`runningcontainer["r"].allocatefrom["a"]`, `".."`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := DecodePod(test.value)
			var malformed *Error
			if !errors.As(err, &malformed) || !errors.Is(err, ErrMalformed) {
				t.Fatalf("error %v, want an *Error", err)
			}
			if malformed.Field != test.field || !strings.Contains(malformed.Problem, test.problem) {
				t.Errorf("field %s, problem %q; want field %s, problem with %q",
					malformed.Field, malformed.Problem, test.field, test.problem)
			}
			if malformed.Fix == "" || len(err.Error()) > 400 {
				t.Errorf("the message has no next step, or is too long: %v", err)
			}
		})
	}
}

func TestNodeRoundTrips(t *testing.T) {
	node := &types.NodeInfo{
		Name:     "n1",
		Capacity: types.ResourceList{"resource/group/gpu/GPU-0/cards": 1, "nvidia.com/gpu": 1},
		Allocatable: types.ResourceList{
			"resource/group/gpu/GPU-0/cards":  1,
			"resource/group/gpu/GPU-0/memory": 85899345920,
		},
		Used:    types.ResourceList{"resource/group/gpu/GPU-0/memory": 1},
		Scorer:  types.ResourceScorer{"resource/group/gpu/GPU-0/memory": 1},
		KubeCap: types.ResourceList{"cpu": 8},
	}
	value, err := EncodeNode(node)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeNode(value)
	if err != nil {
		t.Fatal(err)
	}
	want := node.Clone()
	clear(want.KubeCap) // it is in the node's status
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
}

func TestEncodersRejectUnreadableValues(t *testing.T) {
	_, err := EncodeNode(&types.NodeInfo{Allocatable: types.ResourceList{"gpu/\x00": 1}})
	if !errors.Is(err, ErrMalformed) {
		t.Errorf("node with a bad name: error %v, want ErrMalformed", err)
	}
	if _, err := EncodePod(&types.PodInfo{Requests: types.ResourceList{"gpu": -1}}); !errors.Is(err, ErrMalformed) {
		t.Errorf("pod with a negative quantity: error %v, want ErrMalformed", err)
	}
	large := types.ResourceList{}
	for i := range 8000 {
		large[types.ResourceName(fmt.Sprintf("resource/group/gpu/GPU-%032d/cards", i))] = 1
	}
	_, err = EncodeNode(&types.NodeInfo{Allocatable: large})
	if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "262144") {
		t.Errorf("node with 8000 devices: error %v, want one that names the limit", err)
	}
}

func TestEncodedAnnotationsHaveNoEscapes(t *testing.T) {
	value, err := EncodePod(&types.PodInfo{Requests: types.ResourceList{"gpu/<a>&b/cards": 1}})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"requests":{"gpu/<a>&b/cards":1}}`; value != want {
		t.Errorf("encoded %s, want %s", value, want)
	}
}

func FuzzDecodePod(f *testing.F) {
	for _, value := range seeds(f) {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		info, err := DecodePod(value)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("error %v does not match ErrMalformed", err)
			}
			return
		}
		if info.NodeName != "" && !MayAllocate(value) {
			t.Errorf("MayAllocate misses %q, which names the node %q", value, info.NodeName)
		}
		written, err := EncodePod(info)
		if err != nil {
			t.Fatalf("%v was read from %q but cannot be written: %v", info, value, err)
		}
		again, err := DecodePod(written)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(info, again); diff != "" {
			t.Errorf("written and read again (-first +second):\n%s", diff)
		}
	})
}

func FuzzDecodeNode(f *testing.F) {
	for _, value := range seeds(f) {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		info, err := DecodeNode(value)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("error %v does not match ErrMalformed", err)
			}
			return
		}
		written, err := EncodeNode(info)
		if err != nil {
			t.Fatalf("%v was read from %q but cannot be written: %v", info, value, err)
		}
		again, err := DecodeNode(written)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(info, again); diff != "" {
			t.Errorf("written and read again (-first +second):\n%s", diff)
		}
		if written, err = encodeCompact(info); err != nil {
			t.Fatal(err)
		}
		if again, err = DecodeNode(written); err != nil && len(written) <= MaxBytes {
			t.Fatal(err)
		} else if diff := cmp.Diff(info, again); err == nil && diff != "" {
			t.Errorf("written in the compact form and read again (-first +second):\n%s", diff)
		}
	})
}
