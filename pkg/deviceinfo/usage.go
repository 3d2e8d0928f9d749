// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// MaxUsageBytes is the largest value of [UsageAnnotation]: some 100 containers with devices. Of
// more, a node publishes those with the largest use.
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
	// Containers are those that hold the device or use it, as far as they fit: see [EncodeUsage].
	Containers []ContainerUsage `json:"containers,omitempty"`
}

// ContainerUsage is how a container uses a device.
type ContainerUsage struct {
	PodUID     string         `json:"podUID"`
	Container  string         `json:"container"`
	MemoryUsed device.Reading `json:"memoryUsed,omitzero"`
}

// EncodeUsage writes the annotation KubeDevice/Usage in at most limit bytes. It writes all devices
// before any container: many containers on one device do not leave out another device. Of the
// devices, those that do not fit with those before them, in the order of their paths, are left out.
// Of the containers, those with the largest use are written: one that is left out uses no more of
// its device than those that are in. The value is empty if nothing fits. The same usage and limit
// have the same value.
func EncodeUsage(usage Usage, limit int) (value string) {
	limit = min(limit, MaxUsageBytes)
	part := Usage{Time: usage.Time.UTC().Truncate(time.Second), Devices: map[string]DeviceUsage{}}
	text, err := encode(part)
	size := len(text)
	for _, path := range slices.Sorted(maps.Keys(usage.Devices)) {
		deviceUsage := usage.Devices[path]
		deviceUsage.Containers = nil
		key, keyErr := encode(path)
		entry, entryErr := encode(deviceUsage)
		err = errors.Join(err, keyErr, entryErr)
		if more := len(key) + len(":") + len(entry) + len(","); size+more <= limit {
			part.Devices[path] = deviceUsage
			size += more
		}
	}
	err = errors.Join(err, addContainers(part.Devices, usage.Devices, limit-size))
	text, textErr := encode(part)
	if errors.Join(err, textErr) != nil || len(text) > limit {
		return ""
	}
	return text
}

// addContainers adds the containers with the largest use to devices, in at most limit bytes. Those
// of a device stay in their order.
func addContainers(devices, from map[string]DeviceUsage, limit int) error {
	type container struct {
		path  string
		index int
		use   int64 // -1 if it is unknown
	}
	var all []container
	for _, path := range slices.Sorted(maps.Keys(devices)) {
		for i, c := range from[path].Containers {
			use, known := c.MemoryUsed.Value()
			if !known {
				use = -1
			}
			all = append(all, container{path, i, use})
		}
	}
	slices.SortStableFunc(all, func(a, b container) int { return cmp.Compare(b.use, a.use) })
	chosen := map[string][]int{} // by path
	for _, c := range all {
		entry, err := encode(from[c.path].Containers[c.index])
		if err != nil {
			return err
		}
		limit -= len(entry) + len(",")
		if chosen[c.path] == nil {
			limit -= len(`"containers":[]`)
		}
		if limit < 0 {
			break
		}
		chosen[c.path] = append(chosen[c.path], c.index)
	}
	for path, indexes := range chosen {
		deviceUsage := devices[path]
		for _, i := range slices.Sorted(slices.Values(indexes)) {
			deviceUsage.Containers = append(deviceUsage.Containers, from[path].Containers[i])
		}
		devices[path] = deviceUsage
	}
	return nil
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
	for path, deviceUsage := range usage.Devices {
		deviceUsage.MemoryTotal, deviceUsage.MemoryUsed = plausible(deviceUsage.MemoryTotal),
			plausible(deviceUsage.MemoryUsed)
		deviceUsage.Unowned = plausible(deviceUsage.Unowned)
		for i := range deviceUsage.Containers {
			deviceUsage.Containers[i].MemoryUsed = plausible(deviceUsage.Containers[i].MemoryUsed)
		}
		usage.Devices[path] = deviceUsage
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
