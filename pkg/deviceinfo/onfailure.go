// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"
	"time"
)

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

// The values of OnDeviceFailureAnnotation.
const (
	OnDeviceFailureIgnore  = "Ignore"
	OnDeviceFailureEvict   = "Evict"
	OnDeviceFailureReplace = "Replace"
)

// CheckOnDeviceFailure returns an error for a value of OnDeviceFailureAnnotation that is none of
// the three.
func CheckOnDeviceFailure(value string) error {
	switch value {
	case OnDeviceFailureIgnore, OnDeviceFailureEvict, OnDeviceFailureReplace:
		return nil
	}
	return fmt.Errorf("%q is none of %s, %s and %s", value, OnDeviceFailureIgnore, OnDeviceFailureEvict,
		OnDeviceFailureReplace)
}

// ParseDeviceFailureGracePeriod returns the duration in a value of
// DeviceFailureGracePeriodAnnotation, which is not negative. It returns an error for any other
// value.
func ParseDeviceFailureGracePeriod(value string) (time.Duration, error) {
	grace, err := time.ParseDuration(value)
	if err != nil || grace < 0 {
		return 0, fmt.Errorf("%q is no duration such as 90s", value)
	}
	return grace, nil
}
