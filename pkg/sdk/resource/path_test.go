// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestAPathNamesLevelsInstancesAndAResource(t *testing.T) {
	tests := map[types.ResourceName]struct {
		levels                      []string // level=instance
		device, level, id, resource string
	}{
		"resource/group/gpugrp1/0/gpugrp0/1/gpu/GPU-7f3a/memory": {
			levels: []string{"gpugrp1=0", "gpugrp0=1", "gpu=GPU-7f3a"},
			device: "gpugrp1/0/gpugrp0/1/gpu/GPU-7f3a", level: "gpu", id: "GPU-7f3a", resource: "memory",
		},
		"resource/group/gpu/0/cards": {
			levels:   []string{"gpu=0"},
			device:   "gpu/0",
			level:    "gpu",
			id:       "0",
			resource: "cards",
		},
		"resource/group/tokens": {resource: "tokens"},
	}
	for name, want := range tests {
		t.Run(string(name), func(t *testing.T) {
			path, err := resource.ParsePath(name)
			if err != nil {
				t.Fatal(err)
			}
			var levels []string
			for level, instance := range path.Levels() {
				levels = append(levels, level+"="+instance)
			}
			if !slices.Equal(levels, want.levels) || path.Depth() != len(want.levels) {
				t.Errorf("Levels() = %q, Depth() = %d, want %q", levels, path.Depth(), want.levels)
			}
			got := []string{path.Device(), path.DeviceLevel(), path.DeviceID(), path.Resource()}
			if want := []string{want.device, want.level, want.id, want.resource}; !slices.Equal(got, want) {
				t.Errorf("device, level, ID, resource = %q, want %q", got, want)
			}
			if path.Name() != name || types.DeviceGroupPrefix+"/"+path.String() != string(name) {
				t.Errorf("Name() = %q, String() = %q", path.Name(), path)
			}
			for _, request := range []string{string(name), path.String()} {
				if again, err := resource.ParseRequest(types.ResourceName(request)); err != nil || again != path {
					t.Errorf("ParseRequest(%q) = %v, %v", request, again, err)
				}
				if full := resource.WithPrefix(types.ResourceName(request)); full != name {
					t.Errorf("WithPrefix(%q) = %q", request, full)
				}
			}
		})
	}
}

func TestMalformedPathsAreRefused(t *testing.T) {
	tests := map[types.ResourceName]string{
		"":                                   `must begin with "resource/group/"`,
		"nvidia.com/gpu":                     `must begin with "resource/group/"`,
		"gpu/0/cards":                        `must begin with "resource/group/"`,
		"resource/group":                     `must begin with "resource/group/"`,
		"resource/groups/gpu/0/cards":        `must begin with "resource/group/"`,
		"resource/group/":                    "an empty segment",
		"resource/group//gpu/0/cards":        "an empty segment",
		"resource/group/gpu/0/cards/":        "an empty segment",
		"resource/group/gpu//cards":          "an empty segment",
		"resource/group/gpu/0":               "2 segments",
		"resource/group/grp/0/gpu/cards":     "4 segments",
		types.ResourceName(levelsOfPath(17)): "17 levels, more than 16",
	}
	for name, want := range tests {
		t.Run(string(name), func(t *testing.T) {
			if path, err := resource.ParsePath(name); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("ParsePath = %v, %v, want an error with %q", path, err, want)
			}
		})
	}
	if _, err := resource.ParsePath(types.ResourceName(levelsOfPath(resource.MaxLevels))); err != nil {
		t.Errorf("a path with as many levels as allowed: %v", err)
	}
	if _, err := resource.ParseRequest("gpu/gpu-generate-topology"); err == nil {
		t.Error("a name of two segments is a path")
	}
}

func levelsOfPath(levels int) string {
	return types.DeviceGroupPrefix + strings.Repeat("/level/instance", levels) + "/resource"
}

func TestInstanceFindsTheOutermostLevelOfAName(t *testing.T) {
	path, err := resource.ParsePath("resource/group/a/b/c/a/a/d/c")
	if err != nil {
		t.Fatal(err)
	}
	for level, want := range map[string]string{"a": "b", "c": "a"} {
		if got, ok := path.Instance(level); got != want || !ok {
			t.Errorf("Instance(%q) = %q, %v, want %q", level, got, ok, want)
		}
	}
	for _, level := range []string{"b", "d", ""} { // instances, or nothing
		if got, ok := path.Instance(level); ok {
			t.Errorf("Instance(%q) = %q", level, got)
		}
	}
}

func TestADeviceStaysTheSameInOtherGroups(t *testing.T) {
	tests := map[string]struct {
		a, b types.ResourceName
		want bool
	}{
		"another group":    {"resource/group/gpugrp0/0/gpu/A/cards", "resource/group/gpugrp0/1/gpu/A/cards", true},
		"another resource": {"resource/group/gpugrp0/0/gpu/A/cards", "resource/group/gpu/A/memory", true},
		"another ID":       {"resource/group/gpu/A/cards", "resource/group/gpu/B/cards", false},
		"another level":    {"resource/group/gpu/A/cards", "resource/group/nic/A/cards", false},
		"the node itself":  {"resource/group/cards", "resource/group/gpu/A/cards", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a, errA := resource.ParsePath(test.a)
			b, errB := resource.ParsePath(test.b)
			if errA != nil || errB != nil {
				t.Fatal(errA, errB)
			}
			if a.SameDevice(b) != test.want || b.SameDevice(a) != test.want {
				t.Errorf("SameDevice(%q, %q) = %v", test.a, test.b, !test.want)
			}
		})
	}
}

func TestAPathCostsNoMemory(t *testing.T) {
	const name = "resource/group/gpugrp1/0/gpugrp0/1/gpu/GPU-7f3a/memory"
	sum := 0
	allocations := testing.AllocsPerRun(10, func() {
		path, err := resource.ParsePath(name)
		if err != nil {
			t.Fatal(err)
		}
		for level, instance := range path.Levels() {
			sum += len(level) + len(instance)
		}
		if id, ok := path.Instance("gpu"); ok && path.SameDevice(path) {
			sum += len(id) + len(path.Device()) + len(path.Resource())
		}
	})
	if allocations > 0 || sum == 0 {
		t.Errorf("%v allocations for one path, %d bytes read", allocations, sum)
	}
}

// FuzzParsePath holds a parsed path to the name that it was parsed from.
func FuzzParsePath(f *testing.F) {
	for _, seed := range []string{
		"resource/group/gpu/0/cards", "resource/group/a", "resource/group/a/b", "resource/group//", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		path, err := resource.ParsePath(types.ResourceName(name))
		if err != nil {
			return
		}
		var segments []string
		for level, instance := range path.Levels() {
			segments = append(segments, level, instance)
		}
		segments = append(segments, path.Resource())
		if again := types.DeviceGroupPrefix + "/" + strings.Join(segments, "/"); again != name ||
			slices.Contains(segments, "") {
			t.Errorf("%q reads as %q", name, segments)
		}
		if again, err := resource.ParsePath(path.Name()); err != nil || again != path {
			t.Errorf("ParsePath(%q) = %v, %v", path.Name(), again, err)
		}
	})
}
