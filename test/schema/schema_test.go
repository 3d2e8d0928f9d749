// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/request"
)

func compile(t *testing.T) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile("../../deploy/schema/deviceinfo.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// bySchema reports whether the schema accepts a text.
func bySchema(t *testing.T, schema *jsonschema.Schema, text string) bool {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	return err == nil && schema.Validate(value) == nil
}

// byDecoder reports whether the decoder accepts a text in which all fields are a user's.
func byDecoder(text string) bool {
	_, source, err := deviceinfo.LocatePod(text)
	if err != nil || len(request.Reserved(text)) > 0 {
		return false
	}
	for _, field := range source.Unknown {
		if field.Field != "$schema" {
			return false
		}
	}
	return true
}

func TestSchemaAndDecoderAcceptTheSame(t *testing.T) {
	schema := compile(t)
	request := func(name string) string { return `{"requests": {"` + name + `": 1}}` }
	for text, want := range map[string]bool{
		`{}`:     true,
		`null`:   false,
		`[]`:     false,
		`"text"`: false,
		`{`:      false,
		``:       false,
		`{"$schema": "deviceinfo.schema.json", "requests": {}}`:                               true,
		`{"requests": null, "initcontainer": null, "runningcontainer": null}`:                 true,
		`{"runningcontainer": {"main": null}}`:                                                true,
		`{"runningcontainer": {"main": {"requests": null, "scorer": null}}}`:                  true,
		`{"runningcontainer": {"main": {"requests": {"gpu/a/memory": 21474836480}}}}`:         true,
		`{"runningcontainer": {"main": {"requests": {"gpu/a/memory": "20Gi"}}}}`:              true,
		`{"runningcontainer": {"main": {"requests": {"gpu/a/memory": "20GB"}}}}`:              false,
		`{"runningcontainer": {"main": {"requests": {"gpu/a/memory": "-1Gi"}}}}`:              false,
		`{"runningcontainer": {"main": {"scorer": {"gpu/a/memory": "1"}}}}`:                   false,
		`{"runningcontainer": {"main": {"requests": {"gpu/a/memory": null}}}}`:                false,
		`{"runningcontainer": {"main": {"requests": {"gpu/a/memory": 1.5}}}}`:                 false,
		`{"runningcontainer": {"main": {"requests": {"gpu/a/memory": -1}}}}`:                  false,
		`{"requests": {"a": 9223372036854775807}}`:                                            true,
		`{"requests": {"a": 9223372036854775808}}`:                                            false,
		`{"runningcontainer": {"main": {"scorer": {"a": 2147483647}}}}`:                       true,
		`{"runningcontainer": {"main": {"scorer": {"a": 2147483648}}}}`:                       false,
		`{"runningcontainer": {"main": {"request": {}}}}`:                                     false,
		`{"RunningContainer": {}}`:                                                            false,
		`{"runningcontainer": []}`:                                                            false,
		`{"runningcontainer": {"": {}}}`:                                                      false,
		`{"runningcontainer": {"a b": {}}}`:                                                   false,
		`{"runningcontainer": {"ä": {}}}`:                                                     false,
		`{"runningcontainer": {"` + strings.Repeat("a", deviceinfo.MaxNameBytes) + `": {}}}`:  true,
		`{"runningcontainer": {"a` + strings.Repeat("a", deviceinfo.MaxNameBytes) + `": {}}}`: false,
		`{"runningcontainer": {"main": {"devrequests": {}}}}`:                                 false,
		`{"runningcontainer": {"main": {"allocatefrom": {}}}}`:                                false,
		`{"nodename": "n"}`: false,
		`{"podname": ""}`:   true,
		`{"podname": "p"}`:  true,
		`{"podname": 5}`:    false,
		request(""):         false,
		request("/a"):       false,
		request("a/"):       false,
		request("a//b"):     false,
		request("a/./b"):    true,
		request("a../b"):    false,
		request(".a.b."):    true,
		request("..a"):      false,
		request("a./.b"):    true,
		request(strings.Repeat("a", deviceinfo.MaxNameBytes+1)): false,
	} {
		if got := bySchema(t, schema, text); got != want {
			t.Errorf("%.100s: by the schema %v, want %v", text, got, want)
		}
		if got := byDecoder(text); got != want {
			t.Errorf("%.100s: by the decoder %v, want %v", text, got, want)
		}
	}
}

// What a schema cannot say, the decoder refuses alone.
func TestTheDecoderAloneKnowsHowAValueIsSpelled(t *testing.T) {
	schema := compile(t)
	for _, text := range []string{
		`{"requests": {"a": 1.0}}`, `{"requests": {"a": 1e3}}`, `{"requests": {}, "requests": {}}`,
		`{"requests": {"\u0061": 1}}`, `{"requests": {"a": "500m"}}`, `{"requests": {"a": "8Ei"}}`,
	} {
		if !bySchema(t, schema, text) || byDecoder(text) {
			t.Errorf("%s: by the schema %v, by the decoder %v", text, bySchema(t, schema, text), byDecoder(text))
		}
	}
}

func TestSchemaAndDecoderAgreeOnAnything(t *testing.T) {
	const rounds = 20_000
	schema, accepted := compile(t), 0
	for seed := range uint64(rounds) {
		g := generator{rand.New(rand.NewPCG(seed, 0))}
		text, err := json.Marshal(g.pod())
		if err != nil {
			t.Fatal(err)
		}
		got, want := bySchema(t, schema, string(text)), byDecoder(string(text))
		if got != want {
			t.Fatalf("seed %d: %s: by the schema %v, by the decoder %v", seed, text, got, want)
		}
		if got {
			accepted++
		}
	}
	if accepted < rounds/10 || accepted > rounds*9/10 {
		t.Errorf("%d of %d are accepted: the sample says little", accepted, rounds)
	}
}

// generator makes values that are mostly right.
type generator struct{ *rand.Rand }

func (g generator) pick(of ...any) any { return of[g.IntN(len(of))] }

// or returns right, and rarely something else.
func (g generator) or(right any) any {
	if g.IntN(40) > 0 {
		return right
	}
	return g.pick(nil, true, "x", "", 1, -1, 0.5, []any{}, []any{1}, map[string]any{}, map[string]any{"a": 1})
}

// name returns the name of anything, made of characters that matter.
func (g generator) name() string {
	const characters = "ab/.-_~!#[]0"
	if g.IntN(20) > 0 {
		return fmt.Sprint(g.pick("gpu/a/cards", "gpugrp0/A/gpu/b/memory", "main", "nvidia.com/gpu", "a"), g.IntN(3))
	}
	name := make([]byte, g.IntN(6))
	for i := range name {
		name[i] = characters[g.IntN(len(characters))]
	}
	return string(name) + g.pick("", "", "", " ", "ä", "é").(string)
}

func (g generator) object(most int, entry func() (string, any)) any {
	object := map[string]any{}
	for range g.IntN(most + 1) {
		key, value := entry()
		object[key] = g.or(value)
	}
	return g.or(object)
}

func (g generator) pod() any {
	return g.object(3, func() (string, any) {
		switch key := g.pick("requests", "runningcontainer", "initcontainer", "podname", "$schema").(string); key {
		case "requests":
			return key, g.quantities()
		case "podname":
			return key, g.name()
		case "$schema":
			if g.IntN(5) > 0 {
				return "requests", g.quantities()
			}
			return g.pick(key, "nodename", "unknown").(string), "x"
		default:
			return key, g.object(2, func() (string, any) { return g.name(), g.container() })
		}
	})
}

func (g generator) container() any {
	return g.object(2, func() (string, any) {
		if g.IntN(40) == 0 {
			return g.pick("devrequests", "allocatefrom", "Requests", "").(string), g.quantities()
		}
		return g.pick("requests", "scorer").(string), g.quantities()
	})
}

func (g generator) quantities() any {
	return g.object(3, func() (string, any) {
		number := g.pick("0", "1", "2", "2147483647", "21474836480", "9223372036854775807")
		if g.IntN(40) == 0 {
			number = g.pick("-1", "9223372036854775808", "0.5")
		}
		return g.name(), json.Number(number.(string))
	})
}
