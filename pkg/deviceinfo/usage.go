// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// UsageAnnotation is the key of the annotation in which a node publishes how much of the memory of
// its devices is used. A node whose plugins cannot say has no such annotation. It is for people and
// tools: the scheduler does not read it.
//
// The value is a JSON object of [Usage], with the devices' paths as in [UnhealthyDevice]:
//
//	{"time":"2026-01-02T15:04:05Z","devices":{"gpu/GPU-7f3a":{"memoryTotal":85899345920,"memoryUsed":1073741824,
//	 "containers":[{"podUID":"0b1c…","container":"main","memoryUsed":1073741824}]}}}
const UsageAnnotation = "KubeDevice/Usage"

// MaxUsageBytes is the largest value of [UsageAnnotation]: some 100 containers with devices. A node
// does not publish the usage of more.
const MaxUsageBytes = 16 << 10

// Usage is how a node's devices were used at one time.
type Usage struct {
	// Time is when that was. A node publishes usage again every [UsageRefresh] at least.
	Time time.Time `json:"time"`
	// Devices are by path. The usage of others is unknown.
	Devices map[string]DeviceUsage `json:"devices"`
}

// UsageRefresh is the longest time between two publications. What is older than twice that does not
// count: the node does not publish any more.
const UsageRefresh = 10 * time.Minute

// usageSkew is how far the clock of a node may be ahead of a reader's. maxMemory is more memory
// than any device has, in bytes.
const (
	usageSkew = 5 * time.Minute
	maxMemory = 1 << 50
)

// DeviceUsage is how a device is used. All quantities are in bytes.
type DeviceUsage struct {
	MemoryTotal device.Reading `json:"memoryTotal,omitzero"`
	MemoryUsed  device.Reading `json:"memoryUsed,omitzero"`
	// Unowned is the part that processes of no known container use.
	Unowned device.Reading `json:"memoryUnowned,omitzero"`
	// Containers are those that hold the device or use it.
	Containers []ContainerUsage `json:"containers,omitempty"`
}

// ContainerUsage is how a container uses a device.
type ContainerUsage struct {
	PodUID     string         `json:"podUID"`
	Container  string         `json:"container"`
	MemoryUsed device.Reading `json:"memoryUsed,omitzero"`
}

// EncodeUsage writes the annotation KubeDevice/Usage. A device that does not fit into limit bytes
// with those before it, in the order of their paths, is left out. The value is empty if nothing
// fits. The same usage and limit have the same value.
func EncodeUsage(usage Usage, limit int) (value string) {
	limit = min(limit, MaxUsageBytes)
	at, err := encode(usage.Time.UTC().Truncate(time.Second))
	var text strings.Builder
	text.WriteString(`{"time":` + at + `,"devices":{`)
	separator := ""
	for _, path := range slices.Sorted(maps.Keys(usage.Devices)) {
		key, keyErr := encode(path)
		entry, entryErr := encode(usage.Devices[path])
		err = errors.Join(err, keyErr, entryErr)
		if text.Len()+len(separator)+len(key)+len(":")+len(entry)+len("}}") > limit {
			continue
		}
		text.WriteString(separator + key + ":" + entry)
		separator = ","
	}
	text.WriteString("}}")
	if err != nil || text.Len() > limit {
		return ""
	}
	return text.String()
}

// DecodeUsage reads the annotation KubeDevice/Usage. known is false for one that is empty, or that
// is so old at now that the node does not publish any more, or that is more than 5 minutes in the
// future. Memory that is negative or more than 1 PiB is unknown. Fields that are not known are
// ignored, so that nodes may be newer than their readers.
func DecodeUsage(value string, now time.Time) (usage Usage, known bool, err error) {
	if value == "" {
		return Usage{}, false, nil
	}
	if len(value) > MaxUsageBytes {
		return Usage{}, false, fmt.Errorf("annotation %s has %d bytes, more than %d", UsageAnnotation, len(value),
			MaxUsageBytes)
	}
	if err := json.Unmarshal([]byte(value), &usage); err != nil {
		return Usage{}, false, fmt.Errorf("annotation %s: %w", UsageAnnotation, err)
	}
	for path, of := range usage.Devices {
		of.MemoryTotal, of.MemoryUsed = plausible(of.MemoryTotal), plausible(of.MemoryUsed)
		of.Unowned = plausible(of.Unowned)
		for i := range of.Containers {
			of.Containers[i].MemoryUsed = plausible(of.Containers[i].MemoryUsed)
		}
		usage.Devices[path] = of
	}
	known = !usage.Time.Before(now.Add(-2*UsageRefresh)) && !usage.Time.After(now.Add(usageSkew))
	return usage, known, nil
}

// plausible returns a reading of memory, or an unknown one if no device has so much.
func plausible(memory device.Reading) device.Reading {
	if bytes, _ := memory.Value(); bytes < 0 || bytes > maxMemory {
		return device.Reading{}
	}
	return memory
}
