// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

var sameReading = cmp.Comparer(func(a, b device.Reading) bool { return a == b })

func TestUsageIsReadAsItWasWritten(t *testing.T) {
	at := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	usage := Usage{Time: at, Devices: map[string]DeviceUsage{
		"gpu/a": {
			MemoryTotal: device.Read(80 << 30), MemoryUsed: device.Read(0), Unowned: device.Read(0),
			Containers: []ContainerUsage{
				{PodUID: "1", Container: "main", MemoryUsed: device.Read(5)}, {PodUID: "2", Container: "<main>"},
			},
		},
		"gpu/b": {},
	}}
	const want = `{"time":"2026-01-02T15:04:05Z","devices":{"gpu/a":{"memoryTotal":85899345920,"memoryUsed":0,` +
		`"memoryUnowned":0,"containers":[{"podUID":"1","container":"main","memoryUsed":5},` +
		`{"podUID":"2","container":"<main>"}]},"gpu/b":{}}}`
	value := EncodeUsage(usage, MaxBytes)
	if value != want {
		t.Errorf("written is %s", value)
	}
	got, known, err := DecodeUsage(value, at.Add(2*UsageRefresh))
	if diff := cmp.Diff(usage, got, sameReading); diff != "" || !known || err != nil {
		t.Errorf("read is %v, %v (-want +got):\n%s", known, err, diff)
	}
	if _, known, err := DecodeUsage(value, at.Add(2*UsageRefresh+time.Second)); known || err != nil {
		t.Errorf("when it is old, read is %v, %v", known, err)
	}
}

func TestUsageThatDoesNotFitIsLeftOut(t *testing.T) {
	usage := Usage{Devices: map[string]DeviceUsage{}}
	for i := range 1000 {
		usage.Devices[fmt.Sprintf("gpu/%03d", i)] = DeviceUsage{MemoryUsed: device.Read(int64(i))}
	}
	for _, limit := range []int{MaxBytes, 200, 60, 10, 0, -1} {
		value := EncodeUsage(usage, limit)
		if len(value) > max(0, min(limit, MaxUsageBytes)) {
			t.Errorf("limit %d: written are %d bytes", limit, len(value))
		}
		if got, _, err := DecodeUsage(value, time.Time{}); err != nil || (len(got.Devices) > 0) != (limit >= 200) {
			t.Errorf("limit %d: %d devices are read, %v", limit, len(got.Devices), err)
		}
	}
}

func TestUsageThatIsUnreadableIsAnError(t *testing.T) {
	for name, value := range map[string]string{
		"no JSON":        "{",
		"no number":      `{"time":"2026-01-02T15:04:05Z","devices":{"gpu/a":{"memoryUsed":"5"}}}`,
		"no whole one":   `{"time":"2026-01-02T15:04:05Z","devices":{"gpu/a":{"memoryUsed":5.5}}}`,
		"far too much":   `{"time":"` + strings.Repeat(" ", MaxUsageBytes) + `"}`,
		"no time at all": `{"time":"now"}`,
	} {
		if _, known, err := DecodeUsage(value, time.Time{}); err == nil || known ||
			!strings.Contains(err.Error(), UsageAnnotation) {
			t.Errorf("%s: %v, %v", name, known, err)
		}
	}
	if usage, known, err := DecodeUsage("", time.Now()); known || err != nil || len(usage.Devices) > 0 {
		t.Errorf("nothing: %v, %v, %v", usage, known, err)
	}
	const newer = `{"time":"2026-01-02T15:04:05Z","more":1,"devices":{"gpu/a":{"memoryUsed":null,"more":1}}}`
	usage, _, err := DecodeUsage(newer, time.Time{})
	if err != nil || usage.Devices["gpu/a"].MemoryUsed.String() != "unknown" {
		t.Errorf("of a newer node: %v, %v", usage, err)
	}
}
