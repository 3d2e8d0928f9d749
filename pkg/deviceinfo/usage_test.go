// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"
	"math"
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

func TestContainersOfOneDeviceDoNotLeaveOutAnother(t *testing.T) {
	usage := Usage{Devices: map[string]DeviceUsage{}}
	for i := range 16 {
		deviceUsage := DeviceUsage{MemoryTotal: device.Read(80 << 30), MemoryUsed: device.Read(1 << 30)}
		for n := range 21 { // the last one's use is unknown
			c := ContainerUsage{
				PodUID:    fmt.Sprintf("0b1c2d3e-1111-2222-3333-4444555566%02d", i),
				Container: fmt.Sprintf("%060d", n), MemoryUsed: device.Read(int64(n * (i + 1))),
			}
			if n == 20 {
				c.MemoryUsed = device.Reading{}
			}
			deviceUsage.Containers = append(deviceUsage.Containers, c)
		}
		usage.Devices[fmt.Sprintf("gpu/GPU-%02d", i)] = deviceUsage
	}
	usage.Devices["gpu/GPU-99"] = DeviceUsage{}
	for limit := 2000; limit <= 2*MaxUsageBytes; limit += 97 {
		value := EncodeUsage(usage, limit)
		if again := EncodeUsage(usage, limit); again != value || len(value) > min(limit, MaxUsageBytes) {
			t.Fatalf("limit %d: written are %d bytes, and then %d", limit, len(value), len(again))
		}
		got, _, err := DecodeUsage(value, time.Time{})
		if err != nil || len(got.Devices) != len(usage.Devices) {
			t.Fatalf("limit %d: %d devices are read, want %d; %v", limit, len(got.Devices), len(usage.Devices), err)
		}
		least, most := int64(math.MaxInt64), int64(-1) // of those that are in, and of those that are not
		for path, deviceUsage := range usage.Devices {
			in := got.Devices[path].Containers
			for _, c := range deviceUsage.Containers {
				use, known := c.MemoryUsed.Value()
				switch {
				case len(in) > 0 && in[0] == c:
					in = in[1:]
					least = min(least, use)
				case known:
					most = max(most, use)
				}
			}
			if len(in) > 0 {
				t.Fatalf("limit %d: the containers of %s have another order: %v", limit, path, in)
			}
		}
		if least < most || limit >= 4000 && least == math.MaxInt64 {
			t.Errorf("limit %d: a container that uses %d is in, and one that uses %d is not", limit, least, most)
		}
	}
}

func TestUsageOfTheFutureIsUnknown(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	for at, want := range map[time.Time]bool{
		now.Add(usageSkew):               true,
		now.Add(usageSkew + time.Second): false,
		now.AddDate(7973, 0, 0):          false, // further away than a time.Duration can be
	} {
		if _, known, err := DecodeUsage(EncodeUsage(Usage{Time: at}, MaxBytes), now); known != want || err != nil {
			t.Errorf("usage of %s is known: %v, want %v; %v", at, known, want, err)
		}
	}
}

func TestMemoryThatNoDeviceCanUseIsUnknown(t *testing.T) {
	for bytes, want := range map[int64]device.Reading{
		math.MinInt64: {}, -1: {}, 0: device.Read(0), 1 << 50: device.Read(1 << 50), 1<<50 + 1: {}, math.MaxInt64: {},
	} {
		memory := device.Read(bytes)
		value := EncodeUsage(Usage{Devices: map[string]DeviceUsage{"gpu/a": {
			MemoryTotal: memory, MemoryUsed: memory, Unowned: memory,
			Containers: []ContainerUsage{{MemoryUsed: memory}},
		}}}, MaxBytes)
		got, _, err := DecodeUsage(value, time.Time{})
		wanted := map[string]DeviceUsage{"gpu/a": {
			MemoryTotal: want, MemoryUsed: want, Unowned: want, Containers: []ContainerUsage{{MemoryUsed: want}},
		}}
		if diff := cmp.Diff(wanted, got.Devices, sameReading); diff != "" || err != nil {
			t.Errorf("of %d bytes, read is (-want +got), %v:\n%s", bytes, err, diff)
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
