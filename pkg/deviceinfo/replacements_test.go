// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apitypes "k8s.io/apimachinery/pkg/types"
)

func TestReplacementsRoundTrip(t *testing.T) {
	list := []Replacement{
		{UID: "a", Containers: []string{"main"}}, {UID: "b", Generation: 7, Containers: []string{"log", "main"}},
	}
	value := EncodeReplacements(list, MaxReplacementsBytes)
	const want = `{"version":1,"pods":[{"uid":"a","generation":0,"containers":["main"]},` +
		`{"uid":"b","generation":7,"containers":["log","main"]}]}`
	if value != want {
		t.Errorf("got  %s\nwant %s", value, want)
	}
	got, err := DecodeReplacements(value)
	if diff := cmp.Diff(list, got); err != nil || diff != "" {
		t.Errorf("error %v (-written +read):\n%s", err, diff)
	}
	if value := EncodeReplacements(nil, MaxReplacementsBytes); value != "" {
		t.Errorf("no replacements: %s", value)
	}
}

func TestEncodeReplacementsWritesAsManyAsFit(t *testing.T) {
	var list []Replacement
	for i := range 2000 {
		list = append(list, Replacement{UID: apitypes.UID(fmt.Sprintf("%036d", i)), Containers: []string{"main"}})
	}
	for _, limit := range []int{0, 20, 100, 1000, MaxReplacementsBytes, 1 << 20} {
		value := EncodeReplacements(list, limit)
		if len(value) > min(limit, MaxReplacementsBytes) {
			t.Errorf("limit %d: %d bytes", limit, len(value))
		}
		got, err := DecodeReplacements(value)
		if err != nil {
			t.Errorf("limit %d: %v", limit, err)
		}
		if diff := cmp.Diff(list[:len(got)], got, cmp.Transformer("nil", func(l []Replacement) []Replacement {
			return append([]Replacement{}, l...)
		})); diff != "" {
			t.Errorf("limit %d: others than the first ones:\n%s", limit, diff)
		}
		if limit >= MaxReplacementsBytes && len(got) < 200 {
			t.Errorf("limit %d: only %d pods", limit, len(got))
		}
	}
}

func TestDecodeReplacementsRejectsInvalidLists(t *testing.T) {
	for name, value := range map[string]string{
		"no JSON":                  "main",
		"a list":                   `[]`,
		"more than one object":     `{"version":1,"pods":[]}{}`,
		"a pod without a UID":      `{"version":1,"pods":[{"containers":["main"]}]}`,
		"a pod without containers": `{"version":1,"pods":[{"uid":"a"}]}`,
		"a container without name": `{"version":1,"pods":[{"uid":"a","containers":[""]}]}`,
		"a negative generation":    `{"version":1,"pods":[{"uid":"a","generation":-1,"containers":["main"]}]}`,
		"a pod that is there twice": `{"version":1,"pods":[{"uid":"a","containers":["x"]},` +
			`{"uid":"a","containers":["y"]}]}`,
		"a value that is too long": strings.Repeat(" ", MaxReplacementsBytes+1),
	} {
		if list, err := DecodeReplacements(value); err == nil || list != nil {
			t.Errorf("%s: %v, error %v", name, list, err)
		}
	}
	for name, value := range map[string]string{
		"a later version": `{"version":2,"pods":{"a":1}}`, "nothing": "",
		"an unknown field": `{"version":1,"pods":[],"more":1}`,
	} {
		if list, err := DecodeReplacements(value); err != nil || len(list) != 0 {
			t.Errorf("%s: %v, error %v", name, list, err)
		}
	}
}

func FuzzDecodeReplacements(f *testing.F) {
	f.Add(`{"version":1,"pods":[{"uid":"a","generation":3,"containers":["main"]}]}`)
	f.Add(`{"version":2}`)
	f.Add("")
	f.Fuzz(func(t *testing.T, value string) {
		list, err := DecodeReplacements(value)
		if err != nil || len(list) == 0 {
			return
		}
		written := EncodeReplacements(list, MaxReplacementsBytes)
		again, err := DecodeReplacements(written)
		if err != nil {
			t.Fatalf("%q: %v", written, err)
		}
		if diff := cmp.Diff(list[:len(again)], again); diff != "" {
			t.Errorf("%q: %s", value, diff)
		}
	})
}
