// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// UnhealthyAnnotation is the key of the annotation in which a node publishes the reasons why
// devices of its inventory are unhealthy, and the times. A node without such devices has no such
// annotation. [Annotation] alone suffices to know the allocatable devices: an unhealthy device is
// not allocatable there, with or without a reason here.
const UnhealthyAnnotation = "KubeDevice/Unhealthy"

// MaxUnhealthyBytes is the largest value of [UnhealthyAnnotation]: some 100 devices with long
// messages. A node does not publish the reasons of more devices.
const MaxUnhealthyBytes = 32 << 10

// UnhealthyDevice is one unhealthy device.
type UnhealthyDevice struct {
	// Device is its path without the prefix resource/group/: gpugrp1/0/gpugrp0/1/gpu/GPU-7f3a.
	Device string `json:"device"`
	// Reason is a CamelCase word, Message a text for people.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	// Since is when it became unhealthy, in UTC and whole seconds.
	Since time.Time `json:"since"`
}

// DevicePath returns a device's path as in [UnhealthyDevice] from the common prefix of the names of
// its resources.
func DevicePath(device string) string { return strings.TrimPrefix(device, devicePrefix) }

// EncodeUnhealthy writes the annotation KubeDevice/Unhealthy: the devices in the order of the list,
// the most important ones first, as many of them as fit into limit bytes. It is empty for none.
func EncodeUnhealthy(list []UnhealthyDevice, limit int) string {
	var value strings.Builder
	for i := range list {
		text, err := encode(list[i])
		if err != nil || value.Len()+len(text)+len("[]") > min(limit, MaxUnhealthyBytes) {
			break
		}
		value.WriteString(map[bool]string{true: "[", false: ","}[i == 0])
		value.WriteString(text)
	}
	if value.Len() == 0 {
		return ""
	}
	return value.String() + "]"
}

// DecodeUnhealthy reads the annotation KubeDevice/Unhealthy. It ignores unknown fields, so that
// nodes may be newer than their readers. An empty value has no devices.
func DecodeUnhealthy(value string) ([]UnhealthyDevice, error) {
	if value == "" {
		return nil, nil
	}
	if len(value) > MaxUnhealthyBytes {
		return nil, fmt.Errorf("annotation %s has %d bytes, more than %d", UnhealthyAnnotation, len(value),
			MaxUnhealthyBytes)
	}
	var list []UnhealthyDevice
	if err := json.Unmarshal([]byte(value), &list); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", UnhealthyAnnotation, err)
	}
	for i, d := range list {
		if d.Device == "" || d.Reason == "" {
			return nil, fmt.Errorf("annotation %s: entry %d has no device or no reason", UnhealthyAnnotation, i)
		}
	}
	return list, nil
}
