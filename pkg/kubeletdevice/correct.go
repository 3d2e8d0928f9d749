// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletdevice

import (
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Correct returns the right spelling of a request whose first level is that of NUMA nodes and which
// names an extended resource, but not as requests do: numa/A/nvidia.com/gpu for
// numa/A/nvidia.com:gpu. ok is false for a request that is right, and for one that is for devices
// of another kind or in which no extended resource is recognized.
func Correct(request types.ResourceName) (right types.ResourceName, ok bool) {
	full := resource.WithPrefix(request)
	rest, isNUMA := strings.CutPrefix(string(full), prefix)
	if !isNUMA || isRequest(full) || isRequest(full+"/0/"+Quantity) {
		return "", false
	}
	segments := strings.Split(rest, "/")
	placeholder := "A"
	if !isDomain(segments[0]) && len(segments) > 1 {
		placeholder, segments = segments[0], segments[1:]
	}
	domain, name, joined := strings.Cut(segments[0], ":")
	segments = segments[1:]
	if !joined && len(segments) > 0 {
		name, segments = segments[0], segments[1:]
	}
	level, err := segment(types.ResourceName(domain + "/" + name))
	if err != nil || !isDomain(domain) && !isMalformed(full, segments) {
		return "", false
	}
	spelled := prefix + placeholder + "/" + level
	if len(segments) > 0 {
		spelled += "/" + deviceSegment(segments) + "/" + Quantity
	}
	if !resource.IsGroupResourceName(request) {
		spelled = strings.TrimPrefix(spelled, types.DeviceGroupPrefix+"/")
	}
	return types.ResourceName(spelled), true
}

// deviceSegment returns the segment for the device from those after the resource. An ID has all of
// them, but for the last one if that is Quantity or similar: its "/" must be escaped.
func deviceSegment(segments []string) string {
	first, isID := strings.CutPrefix(segments[0], "=")
	if last := len(segments) - 1; last > 0 && strings.HasPrefix(segments[last], Quantity) {
		segments = segments[:last]
	}
	if !isID || len(segments) == 1 {
		return segments[0]
	}
	id := strings.Join(append([]string{first}, segments[1:]...), "/")
	if unescaped, ok := unescape(id); ok { // parts of it may be right
		id = unescaped
	}
	return "=" + escape(id)
}

// isMalformed reports whether a name is no path at all, so that it may name a resource whose domain
// has no dot, as numa/A/smarter-devices/video0 does. rest are the segments after the resource.
func isMalformed(full types.ResourceName, rest []string) bool {
	_, err := resource.ParsePath(full)
	return err != nil && (len(rest) < 2 || len(rest) == 2 && rest[1] == Quantity)
}

// isRequest reports whether a name is of the form of Request.
func isRequest(name types.ResourceName) bool {
	_, _, _, ok := ParseRequest(name)
	return ok
}

// isDomain reports whether a segment begins like the name of an extended resource: nvidia.com or
// nvidia.com:gpu.
func isDomain(segment string) bool {
	domain, _, _ := strings.Cut(segment, ":")
	return strings.Contains(strings.Trim(domain, "."), ".") && !strings.HasPrefix(segment, "=")
}
