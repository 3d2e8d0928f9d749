// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// MaxLevels is the largest number of levels that a device path may have.
const MaxLevels = 16

// pathPrefix begins every device path.
const pathPrefix = types.DeviceGroupPrefix + "/"

// Path is the parsed name of a device resource:
//
//	resource/group/<level>/<instance>/…/<resource>
//
// In a node's lists the instances are the node's own groups and devices, in a request they are
// placeholders. A path without levels, resource/group/<resource>, names a resource of the node
// itself.
//
// A Path is a small comparable value that refers to the name that it was parsed from: parsing,
// copying, comparing and all methods but Name allocate nothing. The zero Path is the path of no
// resource. ParsePath and ParseRequest make others.
type Path struct {
	name  string // without the prefix
	depth int
}

// ParsePath parses the name of a device resource. It returns an error when the name does not begin
// with the prefix resource/group/, has an empty segment or more than MaxLevels levels, or does not
// alternate levels and instances.
func ParsePath(name types.ResourceName) (Path, error) {
	segments, ok := strings.CutPrefix(string(name), pathPrefix)
	if !ok {
		return Path{}, fmt.Errorf("the name must begin with %q", pathPrefix)
	}
	return parseSegments(segments)
}

// ParseRequest parses a request for a device resource, whose prefix users may leave out. It returns
// the same errors as ParsePath otherwise.
func ParseRequest(name types.ResourceName) (Path, error) {
	return parseSegments(strings.TrimPrefix(string(name), pathPrefix))
}

func parseSegments(name string) (Path, error) {
	if name == "" || name[0] == '/' || name[len(name)-1] == '/' || strings.Contains(name, "//") {
		return Path{}, errors.New("the name has an empty segment")
	}
	slashes := strings.Count(name, "/")
	if slashes%2 != 0 {
		return Path{}, fmt.Errorf(
			"the name must alternate level and instance and end with a resource: %d segments after %q are an even "+
				"number",
			slashes+1, pathPrefix,
		)
	}
	depth := slashes / 2
	if depth > MaxLevels {
		return Path{}, fmt.Errorf("the name has %d levels, more than %d", depth, MaxLevels)
	}
	return Path{name: name, depth: depth}, nil
}

// Name returns the name with its prefix.
func (p Path) Name() types.ResourceName { return types.ResourceName(pathPrefix + p.name) }

// String returns the path without its prefix: gpugrp0/0/gpu/GPU-7f3a/memory.
func (p Path) String() string { return p.name }

// Depth returns the number of levels.
func (p Path) Depth() int { return p.depth }

// Levels yields each level with its instance, from the outermost to the innermost.
func (p Path) Levels() iter.Seq2[string, string] {
	return func(yield func(level, instance string) bool) {
		rest := p.name
		for range p.depth {
			var level, instance string
			level, rest, _ = strings.Cut(rest, "/")
			instance, rest, _ = strings.Cut(rest, "/")
			if !yield(level, instance) {
				return
			}
		}
	}
}

// Instance returns the instance of a level, and whether the path has that level. Of several levels
// of one name it returns the outermost one's.
func (p Path) Instance(level string) (instance string, ok bool) {
	for at, instance := range p.Levels() {
		if at == level {
			return instance, true
		}
	}
	return "", false
}

// Device returns the path of the device that has the resource, without its prefix:
// gpugrp0/0/gpu/GPU-7f3a. It is empty for a resource of the node itself.
func (p Path) Device() string { return p.name[:max(0, strings.LastIndexByte(p.name, '/'))] }

// DeviceLevel returns the innermost level, which is the kind of the device: gpu. It is empty for a
// resource of the node itself.
func (p Path) DeviceLevel() string {
	device := p.Device()
	level := device[:max(0, strings.LastIndexByte(device, '/'))]
	return last(level)
}

// DeviceID returns the innermost instance: GPU-7f3a. It is empty for a resource of the node itself.
func (p Path) DeviceID() string { return last(p.Device()) }

// Resource returns the last segment: memory.
func (p Path) Resource() string { return last(p.name) }

// SameDevice reports whether two paths name resources of one device, whichever groups the device is
// in: the groups of a device are numbered again when a node discovers its devices again, and the
// device keeps its ID.
func (p Path) SameDevice(other Path) bool {
	return p.DeviceID() == other.DeviceID() && p.DeviceLevel() == other.DeviceLevel()
}

// last returns the last segment of a path.
func last(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// WithPrefix returns the name of a request with the prefix resource/group/, which users may leave
// out.
func WithPrefix(name types.ResourceName) types.ResourceName {
	if strings.HasPrefix(string(name), pathPrefix) {
		return name
	}
	return pathPrefix + name
}
