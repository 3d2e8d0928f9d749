// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Enforcement is what holds a container to what it was allocated of a device.
type Enforcement string

// The enforcements.
const (
	// EnforcedByHardware: the container has a whole device, or a partition of one, such as a MIG
	// instance.
	EnforcedByHardware Enforcement = "hardware"
	// Policed: it has a share. kubecri reads what it uses, and ends it, or evicts its pod, when it
	// uses more for longer than a grace period.
	Policed Enforcement = "policed"
	// Library: it has a share, and a library in the container limits what programs allocate that
	// load it.
	Library Enforcement = "library"
	// Counted: it has a share, and can use more. The scheduler counts the shares alone.
	Counted Enforcement = "counted"
)

// enforcements are all of them, the strongest first.
var enforcements = []Enforcement{EnforcedByHardware, Policed, Library, Counted}

// Enforcements returns all of them, the strongest first.
func Enforcements() []Enforcement { return slices.Clone(enforcements) }

// Satisfies reports whether e is least, or stronger.
func (e Enforcement) Satisfies(least Enforcement) bool {
	return slices.Index(enforcements, e) <= slices.Index(enforcements, least)
}

// LeastEnforcementAnnotation is the key of the annotation of a pod that says by what its containers
// must be held to their shares at least: hardware, policed, library or counted. It waits where no
// node does.
const LeastEnforcementAnnotation = "KubeDevice/LeastEnforcement"

// CheckLeastEnforcement returns an error for a value of LeastEnforcementAnnotation that is none of
// the enforcements.
func CheckLeastEnforcement(value string) error {
	if slices.Contains(enforcements, Enforcement(value)) {
		return nil
	}
	var names []string
	for _, e := range enforcements {
		names = append(names, string(e))
	}
	return fmt.Errorf("%q is none of %s", value, strings.Join(names, ", "))
}

// ShareEnforcementAnnotation is the key of the annotation in which a node publishes by what it can
// hold containers to their shares of its devices. A node without it counts them.
//
// The value is a JSON object of [ShareEnforcement], with devices as in [DeviceTaint]:
//
//	{"onShareExceeded":"End","devices":{"gpu/GPU-7f3a":["policed"]}}
const ShareEnforcementAnnotation = "KubeDevice/ShareEnforcement"

// MaxShareEnforcementBytes is the largest value of [ShareEnforcementAnnotation]: some 200 GPUs. A
// node does not publish more; the shares of the others are counted.
const MaxShareEnforcementBytes = 16 << 10

// ShareEnforcement says by what a node can hold containers to their shares.
type ShareEnforcement struct {
	// OnShareExceeded is what happens to containers whose pods have no such annotation, see
	// OnShareExceededAnnotation.
	OnShareExceeded string `json:"onShareExceeded"`
	// Devices have what the node can do for each device, the strongest first. For policed, the pod
	// or OnShareExceeded must say that something follows.
	Devices map[string][]Enforcement `json:"devices"`
}

// Of returns what holds a container to its share of a device, by the device's path without its
// prefix. onShareExceeded is that annotation of its pod, or empty.
func (s ShareEnforcement) Of(path, onShareExceeded string) Enforcement {
	policy := s.OnShareExceeded
	if CheckOnShareExceeded(onShareExceeded) == nil {
		policy = onShareExceeded
	}
	for _, e := range s.Devices[TaintedDevice(path)] {
		switch {
		case !slices.Contains(enforcements, e): // of a later release
		case e != Policed, policy == OnShareExceededEnd, policy == OnShareExceededEvict:
			return e
		}
	}
	return Counted
}

// EncodeShareEnforcement writes the annotation KubeDevice/ShareEnforcement in at most limit bytes.
// Devices that do not fit with those before them, in the order of their paths, are left out. The
// value is empty if the node can do nothing for any device.
func EncodeShareEnforcement(s ShareEnforcement, limit int) (value string) {
	limit = min(limit, MaxShareEnforcementBytes)
	part := ShareEnforcement{OnShareExceeded: s.OnShareExceeded, Devices: map[string][]Enforcement{}}
	size := len(`{"onShareExceeded":"","devices":{}}`) + len(s.OnShareExceeded)
	for _, device := range slices.Sorted(maps.Keys(s.Devices)) {
		entry, entryErr := encode(map[string][]Enforcement{device: s.Devices[device]})
		if size += len(entry); entryErr != nil || size > limit {
			break
		}
		part.Devices[device] = s.Devices[device]
	}
	text, err := encode(part)
	if err != nil || len(part.Devices) == 0 {
		return ""
	}
	return text
}

// DecodeShareEnforcement reads the annotation KubeDevice/ShareEnforcement; an empty one is the zero
// value. It ignores fields that are not known, so that nodes may be newer than their readers.
func DecodeShareEnforcement(value string) (s ShareEnforcement, err error) {
	if value == "" {
		return ShareEnforcement{}, nil
	}
	if len(value) > MaxShareEnforcementBytes {
		return ShareEnforcement{}, fmt.Errorf("annotation %s has %d bytes, more than %d", ShareEnforcementAnnotation,
			len(value), MaxShareEnforcementBytes)
	}
	if err := json.Unmarshal([]byte(value), &s); err != nil {
		return ShareEnforcement{}, fmt.Errorf("annotation %s: %w", ShareEnforcementAnnotation, err)
	}
	return s, nil
}
