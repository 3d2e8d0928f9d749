// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestErrorsHaveOffsets(t *testing.T) {
	for value, want := range map[string]string{ // what stands there
		`{"requests": {"a/b/c": -1}}`:                                        `-1}}`,
		`{"requests": {"a/b/c": "20GB"}}`:                                    `"20GB"}}`,
		`{"requests": {"a//c": 1}}`:                                          `"a//c": 1}}`,
		`{"requests": [1]}`:                                                  `[1]}`,
		`{"requests": {}, "requests": {}}`:                                   `"requests": {}}`,
		"{\n \"runningcontainer\" : {\"main\" :\t{\"scorer\":{\"a\":1.5}}}}": `1.5}}}}`,
		`{"runningcontainer": {"a b": {}}}`:                                  `"a b": {}}}`,
		`{"initcontainer": {"a": {"allocatefrom": {"x": 5}}}}`:               `5}}}}`,
		`{"podname": 5}`:                                                     `5}`,
		`{"requests": {"a": 1 "b": 2}}`:                                      `"b": 2}}`,
		`{"requests": {"a": 1}`:                                              `}`,
		`[1]`:                                                                `[1]`,
		"{\"a\": \"\xff\"}":                                                  "\xff\"}",
		``:                                                                   ``,
	} {
		_, _, err := LocatePod(value)
		var problem *Error
		if !errors.As(err, &problem) {
			t.Fatalf("%s: %v", value, err)
		}
		if got := value[problem.Offset:]; got != want {
			t.Errorf("%s: it stands at %q, want %q: %v", value, got, want, err)
		}
	}
}

func TestSourceHasOffsetsOfFields(t *testing.T) {
	value := `{"x": {"requests": 1}, "requests": {"gpu/gpu-generate-topology": 0},
		"runningcontainer": {"main": {"requests" : {"gpu/a/cards": 1}, "y": [], "scorer": {"gpu/a/cards": 1}}}}`
	_, source, err := LocatePod(value)
	if err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]string{
		"requests":                              `"requests": {"gpu/gpu`,
		`requests["gpu/gpu-generate-topology"]`: `"gpu/gpu-generate-topology": 0`,
		ContainerField("runningcontainer", "main", "", ""):                    `"main": {`,
		ContainerField("runningcontainer", "main", "requests", ""):            `"requests" : {`,
		ContainerField("runningcontainer", "main", "requests", "gpu/a/cards"): `"gpu/a/cards": 1}, "y"`,
		ContainerField("runningcontainer", "main", "scorer", "gpu/a/cards"):   `"gpu/a/cards": 1}}}}`,
		"nothing": `{"x"`,
	} {
		if got := value[source.Offset(field):]; !strings.HasPrefix(got, want) {
			t.Errorf("%s stands at %.30q, want %q", field, got, want)
		}
	}
	want := []UnknownField{
		{Field: "x", Key: "x", Known: []string{"requests", "initcontainer", "runningcontainer"}},
		{Field: `runningcontainer["main"].y`, Key: "y", Known: []string{"requests", "scorer"}},
	}
	if diff := cmp.Diff(want, source.Unknown); diff != "" {
		t.Error(diff)
	}
}

func FuzzLocatePod(f *testing.F) {
	f.Add(`{"runningcontainer": {"main": {"requests": {"gpu/a/cards": 1}, "y": [{}]}}, "requests": null}`)
	f.Add(`{"a": 1 "b"`)
	f.Fuzz(func(t *testing.T, value string) {
		want, wantErr := DecodePod(value)
		got, source, err := LocatePod(value)
		if diff := cmp.Diff(want, got); diff != "" || (err == nil) != (wantErr == nil) {
			t.Fatalf("%v, %v: %s", wantErr, err, diff)
		}
		var problem *Error
		if errors.As(err, &problem) && (problem.Offset < 0 || problem.Offset > len(value)) {
			t.Errorf("%v: at %d of %d bytes", err, problem.Offset, len(value))
		}
		for field, offset := range source.offsets {
			if !strings.HasPrefix(value[offset:], `"`) {
				t.Errorf("%s: no key begins at %d", field, offset)
			}
		}
	})
}
