// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

func TestAttributesRoundTrip(t *testing.T) {
	devices := map[string]device.Attributes{
		"gpu/b": {
			"productName": device.String(`NVIDIA "H100"`), "index": device.Int(-1), "ecc": device.Bool(true),
			"vgpu": device.Bool(false), "driverVersion": device.Version("580.159.4"),
			"resource.kubernetes.io/pciBusID": device.String("0000:17:00.0"),
		},
		"gpu/a": {"one": device.Int(1)},
		"gpu/c": {},
	}
	const want = `{"gpu/a":{"one":1},"gpu/b":{"driverVersion":{"version":"580.159.4"},"ecc":true,"index":-1,` +
		`"productName":"NVIDIA \"H100\"","resource.kubernetes.io/pciBusID":"0000:17:00.0","vgpu":false}}`
	value, left := EncodeAttributes(devices, MaxAttributesBytes)
	if value != want || left != nil {
		t.Errorf("encoded is %s, without %v, want %s", value, left, want)
	}
	delete(devices, "gpu/c")
	if read, err := DecodeAttributes(value); !equalAttributes(read, devices) || err != nil {
		t.Errorf("decoded is %v, %v", read, err)
	}
	if none, err := DecodeAttributes(""); len(none) > 0 || err != nil {
		t.Errorf("no annotation: %v, %v", none, err)
	}
	if none, left := EncodeAttributes(nil, MaxAttributesBytes); none != "" || left != nil {
		t.Errorf("no devices: %q, %v", none, left)
	}
}

func equalAttributes(a, b map[string]device.Attributes) bool {
	return maps.EqualFunc(a, b, func(a, b device.Attributes) bool { return maps.Equal(a, b) })
}

func TestDevicesWhoseAttributesDoNotFitAreLeftOutAlone(t *testing.T) {
	devices := map[string]device.Attributes{
		"gpu/a": {"one": device.Int(1)},
		"gpu/b": {"text": device.String(strings.Repeat("x", MaxAttributeBytes))},
		"gpu/c": {"one": device.Int(1)},
	}
	const want = `{"gpu/a":{"one":1},"gpu/c":{"one":1}}`
	value, left := EncodeAttributes(devices, len(want))
	if value != want || !cmp.Equal(left, []string{"gpu/b"}) {
		t.Errorf("encoded is %s, without %v, want %s", value, left, want)
	}
	if value, left := EncodeAttributes(devices, -1); value != "" || len(left) != 3 {
		t.Errorf("with no room, encoded is %s, without %v", value, left)
	}
	for i := range 2000 {
		devices[fmt.Sprint("gpu/", i)] = devices["gpu/b"]
	}
	value, left = EncodeAttributes(devices, MaxBytes)
	if len(value) > MaxAttributesBytes || len(value) < MaxAttributesBytes-200 || len(left) == 0 {
		t.Errorf("encoded has %d bytes, %d devices are left out", len(value), len(left))
	}
}

func TestAttributesOfNewerNodesAreIgnored(t *testing.T) {
	read, err := DecodeAttributes(`{"gpu/a":{"list":["x"],"float":1.5,"none":null,"date":{"date":"2026"},"one":1},` +
		`"gpu/b":{"list":[]}}`)
	if !equalAttributes(read, map[string]device.Attributes{"gpu/a": {"one": device.Int(1)}}) || err != nil {
		t.Errorf("decoded is %v, %v", read, err)
	}
}

func TestAttributesBeyondTheLimitsAreErrors(t *testing.T) {
	long := strings.Repeat("x", MaxAttributeBytes+1)
	many := strings.TrimSuffix(strings.Repeat(`"a":1,`, 3), ",")
	for i := range MaxAttributes {
		many += fmt.Sprintf(`,"b%d":1`, i)
	}
	for value, want := range map[string]string{
		`{`:                               "unexpected end",
		`[]`:                              "cannot unmarshal",
		`{"a":{"x":1}} {}`:                "after top-level value",
		`{"a":{"0x":1}}`:                  "must be a C identifier",
		`{"a":{"` + long + `":1}}`:        "must be a C identifier",
		`{"a":{"/x":1}}`:                  "DNS subdomain",
		`{"a":{"A.example/x":1}}`:         "DNS subdomain",
		`{"a":{"x":"` + long + `"}}`:      "more than 64",
		`{"a":{"x":""}}`:                  "leave out what is not known",
		`{"a":{"x":"\u001b[31m"}}`:        "cannot be printed",
		`{"a":{"x":{"version":"9.0"}}}`:   "Semantic Versioning",
		`{"a":{"x":{"version":"9.0.04"}}`: "unexpected end",
		`{"a":{` + many + `}}`:            "33 attributes, more than 32",
		`{"a":"` + strings.Repeat("x", MaxAttributesBytes) + `"}`: "more than 65536",
	} {
		if read, err := DecodeAttributes(value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, %v, want %s", value, read, err, want)
		}
	}
	if err := CheckAttribute("x", device.Attribute{}); err == nil {
		t.Error("an attribute without a value is none")
	}
}

func FuzzDecodeAttributes(f *testing.F) {
	f.Add(`{"gpu/a":{"one":1,"b":true,"s":"x","v":{"version":"1.2.3-a.1+b"},"newer":[1]}}`)
	f.Add(`{"":{"example.com/x":-9223372036854775808}}`)
	f.Add(`{"a":null}`)
	f.Fuzz(func(t *testing.T, value string) {
		read, err := DecodeAttributes(value)
		if err != nil {
			return
		}
		written, left := EncodeAttributes(read, MaxAttributesBytes)
		again, err := DecodeAttributes(written)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range left {
			delete(read, path)
		}
		if !equalAttributes(read, again) {
			t.Errorf("%v became %v", read, again)
		}
	})
}
