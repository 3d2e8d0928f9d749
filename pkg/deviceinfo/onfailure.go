// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

// The annotations by which a pod, or for its pods a namespace, chooses what happens when a device
// that the pod holds becomes unhealthy.
const (
	// OnDeviceFailureAnnotation is Ignore, Evict or Replace.
	OnDeviceFailureAnnotation = "KubeDevice/OnDeviceFailure"
	// DeviceFailureGracePeriodAnnotation is how long the device may be unhealthy before anything
	// happens to the pod, as a Go duration such as 90s.
	DeviceFailureGracePeriodAnnotation = "KubeDevice/DeviceFailureGracePeriod"
)

// DevicesHealthyCondition is the type of the pod condition that says whether the devices which the
// pod holds are healthy. A pod whose devices always were has none.
const DevicesHealthyCondition = "DevicesHealthy"
