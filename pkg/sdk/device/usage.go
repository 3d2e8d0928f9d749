// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"encoding/json"
	"strconv"
)

// UsageReporter is implemented by a plugin that can read how much of its devices is used, and by
// which processes. It is about real use. What pods hold, the host knows.
type UsageReporter interface {
	// DeviceUsage reads the usage of devices now, and returns it by what the names of a device's
	// resources have in common, as in [Health]. The host calls it every few seconds once
	// UpdateNodeInfo has succeeded, within the same time limit, and one call at a time unless the
	// plugin is [ConcurrentSafe]. The answer is the host's: the plugin must not keep it.
	//
	// The usage of a device that is not in the answer is unknown. Entries of devices that the
	// plugin does not have are ignored. After an error, the usage of all of its devices is unknown.
	DeviceUsage() (map[string]Usage, error)
}

// Usage is how much of a device is used at one time. The zero value says that nothing is known.
type Usage struct {
	// MemoryTotal is how many bytes of the device's memory all programs together can use, and
	// MemoryUsed how many they do.
	MemoryTotal, MemoryUsed Reading
	// Utilization is how much of the time the device was busy, in percent from 0 to 100, over a
	// short period that the plugin or the driver chooses.
	Utilization Reading
	// Processes are those that use the device, each once.
	Processes []ProcessUsage
	// Complete says that there are no other processes. It is false where the driver cannot list
	// them.
	Complete bool
}

// ProcessUsage is how much one process uses of a device.
type ProcessUsage struct {
	// PID identifies the process in the PID namespace of the host.
	PID int
	// Memory is how many bytes of the device's memory the process uses.
	Memory Reading
	// Utilization is the part of Usage.Utilization that is the process's, in percent. Drivers know
	// it of some processes only.
	Utilization Reading
}

// Reading is a number that was read from a device. The zero value is a number that is not known,
// which is not 0. Readings can be compared.
type Reading struct {
	value int64
	known bool
}

// Read returns the reading of a number.
func Read(value int64) Reading { return Reading{value, true} }

// Value returns the number, and whether it is known. A number that is not known is 0.
func (r Reading) Value() (value int64, known bool) { return r.value, r.known }

// String returns the number in decimal, or unknown.
func (r Reading) String() string {
	if !r.known {
		return "unknown"
	}
	return strconv.FormatInt(r.value, 10)
}

// MarshalJSON implements json.Marshaler. A number that is not known is null.
func (r Reading) MarshalJSON() ([]byte, error) {
	if !r.known {
		return []byte("null"), nil
	}
	return []byte(r.String()), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Reading) UnmarshalJSON(data []byte) error {
	var value *int64
	if err := json.Unmarshal(data, &value); err != nil {
		return err
	}
	*r = Reading{}
	if value != nil {
		*r = Read(*value)
	}
	return nil
}
