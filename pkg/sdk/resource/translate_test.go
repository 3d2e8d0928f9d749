// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// names makes a list of names, each with its place as quantity, so that a test sees which request
// went where.
func names(list ...types.ResourceName) types.ResourceList {
	out := types.ResourceList{}
	for i, name := range list {
		out[name] = int64(i + 1)
	}
	return out
}

func TestRequestsAreLiftedToTheLevelsOfTheNode(t *testing.T) {
	oneLevel := names("resource/group/gpugrp0/0/gpu/GPU-1/cards", "resource/group/gpugrp0/0/gpu/GPU-1/memory")
	twoLevels := names("resource/group/gpugrp1/0/gpugrp0/0/gpu/GPU-1/cards")

	tests := map[string]struct {
		node, requests       types.ResourceList
		thisStage, nextStage string
		want                 types.ResourceList // nil: the requests come back as they are
	}{
		"each device that requests no group gets one of its own": {
			node: oneLevel, thisStage: "gpugrp0", nextStage: "gpu",
			requests: names("resource/group/gpu/a/cards", "resource/group/gpu/b/cards"),
			want:     names("resource/group/gpugrp0/0/gpu/a/cards", "resource/group/gpugrp0/1/gpu/b/cards"),
		},
		"the resources of one device stay together": {
			node: oneLevel, thisStage: "gpugrp0", nextStage: "gpu",
			requests: names("resource/group/gpu/a/cards", "resource/group/gpu/a/memory", "resource/group/gpu/b/memory"),
			want: names("resource/group/gpugrp0/0/gpu/a/cards", "resource/group/gpugrp0/0/gpu/a/memory",
				"resource/group/gpugrp0/1/gpu/b/memory"),
		},
		"numbers go on from the largest that is in use": {
			node: oneLevel, thisStage: "gpugrp0", nextStage: "gpu",
			requests: names("resource/group/gpugrp0/7/gpu/a/cards", "resource/group/gpugrp0/3/gpu/b/cards",
				"resource/group/gpu/c/cards"),
			want: names("resource/group/gpugrp0/7/gpu/a/cards", "resource/group/gpugrp0/3/gpu/b/cards",
				"resource/group/gpugrp0/8/gpu/c/cards"),
		},
		"placeholders that are no numbers do not count": {
			node: oneLevel, thisStage: "gpugrp0", nextStage: "gpu",
			requests: names("resource/group/gpugrp0/A/gpu/a/cards", "resource/group/gpu/c/cards"),
			want:     names("resource/group/gpugrp0/A/gpu/a/cards", "resource/group/gpugrp0/0/gpu/c/cards"),
		},
		"numbers follow the sorted order of names, so 10 comes before 2": {
			node: oneLevel, thisStage: "gpugrp0", nextStage: "gpu",
			requests: names("resource/group/gpu/2/cards", "resource/group/gpu/10/cards"),
			want:     names("resource/group/gpugrp0/1/gpu/2/cards", "resource/group/gpugrp0/0/gpu/10/cards"),
		},
		"the second level is lifted above the first": {
			node: twoLevels, thisStage: "gpugrp1", nextStage: "gpugrp0",
			requests: names("resource/group/gpugrp0/A/gpu/a/cards", "resource/group/gpugrp0/A/gpu/b/cards"),
			want: names("resource/group/gpugrp1/0/gpugrp0/A/gpu/a/cards",
				"resource/group/gpugrp1/0/gpugrp0/A/gpu/b/cards"),
		},
		"a level goes in below a level that is there": {
			node: twoLevels, thisStage: "gpugrp0", nextStage: "gpu",
			requests: names("resource/group/gpugrp1/A/gpu/a/cards"),
			want:     names("resource/group/gpugrp1/A/gpugrp0/0/gpu/a/cards"),
		},
		"other requests come along unchanged": {
			node: oneLevel, thisStage: "gpugrp0", nextStage: "gpu",
			requests: names("resource/group/gpu/a/cards", "resource/group/nic/a/ports", "nvidia.com/gpu"),
			want:     names("resource/group/gpugrp0/0/gpu/a/cards", "resource/group/nic/a/ports", "nvidia.com/gpu"),
		},
		"names without the group prefix are lifted alike": {
			node: oneLevel, thisStage: "gpugrp0", nextStage: "gpu",
			requests: names("gpu/a/cards"),
			want:     names("gpugrp0/0/gpu/a/cards"),
		},
		"an instance that is called like a level is none": {
			node: oneLevel, thisStage: "gpugrp0", nextStage: "gpu",
			requests: names("resource/group/board/gpu/port/0/links"),
		},
		"a resource that is called like a level is none": {
			node: oneLevel, thisStage: "gpugrp0", nextStage: "gpu",
			requests: names("resource/group/board/0/gpu", "resource/group/gpu/0"),
		},
		"requests that have the level stay": {
			node: oneLevel, thisStage: "gpugrp0", nextStage: "gpu",
			requests: names("resource/group/gpugrp0/A/gpu/a/cards"),
		},
		"a node without the level lifts nothing": {
			node: names("resource/group/gpu/GPU-1/cards"), thisStage: "gpugrp0", nextStage: "gpu",
			requests: names("resource/group/gpu/a/cards"),
		},
		"a node whose level is above another one lifts nothing": {
			node: twoLevels, thisStage: "gpugrp1", nextStage: "gpu",
			requests: names("resource/group/gpu/a/cards"),
		},
		"an empty request stays empty": {
			node: oneLevel, thisStage: "gpugrp0", nextStage: "gpu",
			requests: types.ResourceList{},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := maps.Clone(test.requests)
			modified, got := resource.TranslateResource(test.node, test.requests, test.thisStage, test.nextStage)
			if modified != (test.want != nil) {
				t.Errorf("modified = %v", modified)
			}
			want := test.want
			if want == nil {
				want = before
			}
			if !maps.Equal(got, want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
			if !maps.Equal(test.requests, before) {
				t.Errorf("the requests that were passed in changed: %v", test.requests)
			}
		})
	}
}

func FuzzLiftingKeepsEveryRequestAndIsDoneAfterOnce(f *testing.F) {
	f.Add("resource/group/gpugrp0/0/gpu/x/cards", "resource/group/gpu/a/cards", "resource/group/gpugrp0/4/gpu/b/cards")
	f.Add("gpugrp0/0/gpu/x/cards", "gpu/a/cards", "gpu//")
	f.Add("resource/group/gpugrp0/gpugrp0/gpu/gpu/gpu", "resource/group/gpu/gpugrp0/gpu/gpu/c",
		"resource/group/gpu/gpu/gpu")
	f.Fuzz(func(t *testing.T, node, first, second string) {
		requests := names(types.ResourceName(first), types.ResourceName(second))
		nodeList := names(types.ResourceName(node))
		_, out := resource.TranslateResource(nodeList, requests, "gpugrp0", "gpu")
		if len(out) != len(requests) {
			t.Fatalf("%v became %v", requests, out)
		}
		for name, quantity := range out {
			from := map[int64]string{1: first, 2: second}[quantity]
			if first != second && !isSubsequence(from, string(name)) {
				t.Errorf("%q became %q", from, name)
			}
		}
		if modified, again := resource.TranslateResource(nodeList, out, "gpugrp0", "gpu"); modified {
			t.Errorf("lifted twice: %v, then %v", out, again)
		}
	})
}

// isSubsequence reports whether the segments of short are among those of long, in the same order.
func isSubsequence(short, long string) bool {
	rest := strings.Split(long, "/")
	for _, segment := range strings.Split(short, "/") {
		i := 0
		for i < len(rest) && rest[i] != segment {
			i++
		}
		if i == len(rest) {
			return false
		}
		rest = rest[i+1:]
	}
	return true
}
