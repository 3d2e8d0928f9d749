// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestUnhealthyDevicesRoundTrip(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	list := []UnhealthyDevice{
		{Device: "gpu/GPU-b", Reason: "Xid79", Message: `fell off "the bus"`, Since: since},
		{Device: "gpu/GPU-a", Reason: "Unhealthy", Since: since},
	}
	value := EncodeUnhealthy(list, MaxUnhealthyBytes)
	const want = `[{"device":"gpu/GPU-b","reason":"Xid79","message":"fell off \"the bus\"",` +
		`"since":"2026-01-02T03:04:05Z"},{"device":"gpu/GPU-a","reason":"Unhealthy","since":"2026-01-02T03:04:05Z"}]`
	if value != want {
		t.Errorf("written is %s, want %s", value, want)
	}
	read, err := DecodeUnhealthy(value)
	if diff := cmp.Diff(list, read); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if first := EncodeUnhealthy(list, len(value)-1); first != want[:strings.Index(want, ",{")]+"]" {
		t.Errorf("where only one fits, written is %s", first)
	}
	if none := EncodeUnhealthy(list, 10); none != "" {
		t.Errorf("where none fits, written is %s", none)
	}
	if none, err := DecodeUnhealthy(EncodeUnhealthy(nil, MaxUnhealthyBytes)); none != nil || err != nil {
		t.Errorf("none: %v, %v", none, err)
	}
}

func FuzzDecodeUnhealthy(f *testing.F) {
	f.Add(`[{"device":"gpu/a","reason":"Lost","since":"2026-01-02T03:04:05Z","newer":1}]`)
	f.Add(`[{}]`)
	f.Add(`{`)
	f.Fuzz(func(t *testing.T, value string) {
		list, err := DecodeUnhealthy(value)
		if err != nil {
			return
		}
		again, err := DecodeUnhealthy(EncodeUnhealthy(list, MaxUnhealthyBytes))
		if err != nil {
			t.Fatal(err)
		}
		for i := range again {
			if again[i].Device != list[i].Device || !again[i].Since.Equal(list[i].Since) {
				t.Errorf("%+v became %+v", list[i], again[i])
			}
		}
	})
}
