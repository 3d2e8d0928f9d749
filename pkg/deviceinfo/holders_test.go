// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const (
	gpu0      = "resource/group/gpugrp0/0/gpu/GPU-0/cards"
	holderOne = `{"uid":"u1","namespace":"team","name":"train","containers":{"main":{"` + gpu0 + `":1}}}`
)

func TestHoldersRoundTripInCanonicalOrder(t *testing.T) {
	first := Holder{UID: "u1", Namespace: "team", Name: "train", Containers: map[string]types.ResourceList{
		"main": {gpu0: 1, "resource/group/gpugrp0/0/gpu/GPU-0/memory": 1 << 34},
	}}
	second := Holder{UID: "u0", Namespace: "zoo", Name: "a", Containers: map[string]types.ResourceList{
		"init": {gpu0: 1}, "main": {"resource/group/gpu/a/enumLinks": 5},
	}}
	want, err := EncodeHolders([]Holder{first, second})
	if err != nil {
		t.Fatal(err)
	}
	reversed, err := EncodeHolders([]Holder{second, first})
	if err != nil || reversed != want {
		t.Errorf("in the other order: %s, %v; want %s", reversed, err, want)
	}
	got, err := DecodeHolders(want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Holder{first, second}, got); diff != "" {
		t.Errorf("read again (-want +got):\n%s", diff)
	}
}

func TestNoHoldersEncodeToNothing(t *testing.T) {
	if value, err := EncodeHolders(nil); value != "" || err != nil {
		t.Errorf("encoded %q, %v; want nothing", value, err)
	}
	for _, value := range []string{"", "[]", " [ ] "} {
		if got, err := DecodeHolders(value); len(got) != 0 || err != nil {
			t.Errorf("%q: %v, %v; want no holders", value, got, err)
		}
	}
}

func TestHolderListsAllContainersDevices(t *testing.T) {
	holder := HolderOf("u1", "team", "train", &types.PodInfo{
		InitContainers: map[string]types.ContainerInfo{"init": {
			DevRequests:  types.ResourceList{"a": 2, "b": 3},
			AllocateFrom: types.ResourceLocation{"a": gpu0, "b": gpu0},
		}},
		RunningContainers: map[string]types.ContainerInfo{
			"main": {
				DevRequests: types.ResourceList{"a": 4, "b": 5, "unmet": 1},
				AllocateFrom: types.ResourceLocation{
					"a": "resource/group/gpu/a/enumLinks", "b": "resource/group/gpu/a/enumLinks",
				},
			},
			"without": {Requests: types.ResourceList{"c": 0}},
		},
	})
	want := Holder{UID: "u1", Namespace: "team", Name: "train", Containers: map[string]types.ResourceList{
		"init": {gpu0: 5}, "main": {"resource/group/gpu/a/enumLinks": 4 | 5},
	}}
	if diff := cmp.Diff(want, holder); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMalformedHoldersErrorNamesTheField(t *testing.T) {
	with := func(old, changed string) string { return "[" + strings.Replace(holderOne, old, changed, 1) + "]" }
	for name, test := range map[string]struct{ value, want string }{
		"no list":                  {holderOne, "the value is an object; write a list"},
		"null":                     {`null`, "the value is null"},
		"cut":                      {`[` + holderOne, "not JSON"},
		"two lists":                {`[][]`, "not JSON"},
		"a pod twice":              {`[` + holderOne + `,` + holderOne + `]`, `[1].uid: the pod "u1" is listed twice`},
		"a pod that is null":       {`[null]`, "[0].uid: it is absent"},
		"no UID":                   {with(`"uid":"u1",`, ``), "[0].uid: it is absent"},
		"no namespace":             {with(`"team"`, `""`), "[0].namespace: it is absent"},
		"no name":                  {with(`"name":"train",`, ``), "[0].name: it is absent"},
		"no containers":            {with(`{"main":{"`+gpu0+`":1}}`, `{}`), "[0].containers: it is absent"},
		"a key twice":              {with(`"uid":"u1"`, `"uid":"u1","uid":"u2"`), `the key "uid" occurs twice`},
		"a resource of no device":  {with(gpu0, "nvidia.com/gpu"), "begins with resource/group/"},
		"a resource with dots":     {with("GPU-0", ".."), `the name has ".."`},
		"a negative quantity":      {with(`:1}`, `:-1}`), "negative"},
		"a quantity that is text":  {with(`:1}`, `:"1"}`), "it is a string"},
		"a name with a quote":      {with(`train`, `tr\"ain`), "the name has the character"},
		"resources without amount": {with(`{"`+gpu0+`":1}`, `["`+gpu0+`"]`), "it is a list; write an object"},
		"text that is not UTF-8":   {"[\xff]", "not UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeHolders(test.value)
			if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), test.want) ||
				!strings.HasPrefix(err.Error(), "annotation "+HoldersAnnotation+": ") {
				t.Errorf("%s: %v, %v; want an error about %s with %q", test.value, got, err, HoldersAnnotation,
					test.want)
			}
		})
	}
}

func TestHoldersHaveASizeLimit(t *testing.T) {
	holders := make([]Holder, 2000)
	for i := range holders {
		holders[i] = Holder{UID: apitypes.UID(fmt.Sprintf("u%d", i)), Namespace: "team", Name: "train",
			Containers: map[string]types.ResourceList{"main": {gpu0: 1}}}
	}
	if _, err := EncodeHolders(holders); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "131072") {
		t.Errorf("2000 pods: error %v, want one that names the limit", err)
	}
	if _, err := EncodeHolders(holders[:110]); err != nil {
		t.Errorf("110 pods: %v", err)
	}
}

func FuzzDecodeHolders(f *testing.F) {
	f.Add(`[` + holderOne + `]`)
	f.Add(`[{"uid":"u","namespace":"n","name":"p","containers":{"c":null},"later":[1]}]`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, value string) {
		holders, err := DecodeHolders(value)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("error %v does not match ErrMalformed", err)
			}
			return
		}
		written, err := EncodeHolders(holders)
		if err != nil && len(value) < MaxHoldersBytes/2 {
			t.Fatalf("%v was read from %q but cannot be written: %v", holders, value, err)
		}
		again, err := DecodeHolders(written)
		if err != nil {
			t.Fatal(err)
		}
		rewritten, err := EncodeHolders(again)
		if err != nil || rewritten != written || len(again) != len(holders) {
			t.Errorf("written again: %s, %v; want %s", rewritten, err, written)
		}
		if slices.ContainsFunc(again, func(h Holder) bool { return h.UID == "" }) {
			t.Errorf("a pod without a UID in %s", written)
		}
	})
}
