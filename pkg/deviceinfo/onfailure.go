// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

// The annotations of a pod, or of a namespace for its pods, that choose the policy for a device of
// the pod that becomes unhealthy.
const (
	// OnDeviceFailureAnnotation is Ignore, Evict or Replace.
	OnDeviceFailureAnnotation = "KubeDevice/OnDeviceFailure"
	// DeviceFailureGracePeriodAnnotation is how long the device may be unhealthy before the policy
	// takes effect, as a Go duration such as 90s.
	DeviceFailureGracePeriodAnnotation = "KubeDevice/DeviceFailureGracePeriod"
)

// DevicesHealthyCondition is the type of the pod condition that says whether the pod's devices are
// healthy. A pod without an unhealthy device so far has no such condition.
const DevicesHealthyCondition = "DevicesHealthy"
