// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package device

import "time"

// HealthReporter is implemented by a plugin that knows why a device is unhealthy. What pods may be
// given is still what [Device.UpdateNodeInfo] says: a device none of whose resources are
// allocatable is unhealthy, and without HealthReporter the reason is not known.
type HealthReporter interface {
	// DeviceHealth returns the health of devices, in any order. The host calls it after each
	// successful UpdateNodeInfo. A device that is not listed is healthy if some of it is
	// allocatable. One that is listed as unhealthy is not given to pods, even if UpdateNodeInfo
	// says that it is allocatable. One that is listed as healthy, as after a repair, is so only if
	// it is allocatable. Entries of devices that the plugin does not have are ignored. An error
	// leaves the devices as they are in UpdateNodeInfo, without reasons.
	DeviceHealth() ([]Health, error)
}

// Health is the health of one device.
type Health struct {
	// Device is what the names of the device's resources have in common: all but the last segment,
	// such as resource/group/gpugrp1/0/gpugrp0/1/gpu/GPU-7f3a.
	Device string
	// Healthy says whether pods may be given the device.
	Healthy bool
	// Reason says in one CamelCase word of at most 64 letters and digits why, such as
	// RowRemapFailed, or how a healthy device became so. A plugin has few of them: they are a label
	// of metrics. One that is no such word counts as Unhealthy.
	Reason string
	// Message says the rest in words for people, such as what to do. The host shows 256 bytes.
	Message string
	// Since is when the device became healthy or unhealthy; zero if that is not known.
	Since time.Time
}
