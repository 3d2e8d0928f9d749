// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
)

// mostLevels bounds what it takes to compare two devices.
const mostLevels = 8

// Levels are attributes by whose values devices are grouped, the closest first. An attribute of one
// driver's domain groups the devices of that driver alone.
type Levels []resourceapi.FullyQualifiedName

// DefaultLevels are the attributes that Kubernetes itself names.
var DefaultLevels = Levels{
	resourceapi.FullyQualifiedName(deviceattribute.StandardDeviceAttributePCIeRoot),
	resourceapi.FullyQualifiedName(deviceattribute.StandardDeviceAttributeNUMANode),
}

// String returns the attributes with commas in between.
func (l Levels) String() string {
	names := make([]string, len(l))
	for i, level := range l {
		names[i] = string(level)
	}
	return strings.Join(names, ",")
}

// ParseLevels returns the attributes between commas; none for "".
func ParseLevels(text string) (Levels, error) {
	levels := Levels{}
	for name := range strings.SplitSeq(text, ",") {
		if text != "" {
			levels = append(levels, resourceapi.FullyQualifiedName(strings.TrimSpace(name)))
		}
	}
	return levels, levels.Validate()
}

// Validate returns an error that names what is wrong.
func (l Levels) Validate() error {
	if len(l) > mostLevels {
		return fmt.Errorf("has %d attributes, and at most %d are compared", len(l), mostLevels)
	}
	for i, level := range l {
		domain, name, _ := strings.Cut(string(level), "/")
		problems := slices.Concat(validation.IsDNS1123Subdomain(domain), validation.IsCIdentifier(name))
		if len(problems) > 0 {
			return fmt.Errorf("%q must be the name of an attribute with its domain, such as %q: %s", level,
				DefaultLevels[0], strings.Join(problems, "; "))
		}
		if slices.Contains(l[:i], level) {
			return fmt.Errorf("has %q twice", level)
		}
	}
	return nil
}
