// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// TranslateResource lifts requests by one level of topology, for a node that has that level.
//
// Where a node resource is named …/<thisStage>/<x>/<nextStage>/…, each request that has
// <nextStage>/<id>/… without <thisStage>/… in front of it becomes
// …/<thisStage>/<k>/<nextStage>/<id>/…. Each distinct id gets one fresh number k, counted on from
// the largest number that the requests already use at that level, in the sorted order of the
// request names: so resources of one device stay together, and devices that requested no common
// group may land anywhere.
//
// out is a new list when modified is true, and containerRequests itself otherwise. Lift the lowest
// level first:
//
//	_, out := TranslateResource(node, requests, "gpugrp0", "gpu")
//	_, out = TranslateResource(node, out, "gpugrp1", "gpugrp0")
func TranslateResource(
	nodeResources, containerRequests types.ResourceList,
	thisStage, nextStage string,
) (modified bool, out types.ResourceList) {
	if !hasStages(nodeResources, thisStage, nextStage) {
		return false, containerRequests
	}
	var fresh uint64
	for name := range containerRequests {
		if number, ok := numberAt(segments(name), thisStage); ok {
			fresh = max(fresh, number+1)
		}
	}

	out = make(types.ResourceList, len(containerRequests))
	numbers := map[string]string{} // id at nextStage → number at thisStage
	for _, name := range slices.Sorted(maps.Keys(containerRequests)) {
		path := segments(name)
		next := levelIndex(path, nextStage)
		if next < 0 || levelIndex(path[:next+1], thisStage) >= 0 {
			out[name] = containerRequests[name]
			continue
		}
		id := path[next+1]
		if _, ok := numbers[id]; !ok {
			numbers[id] = strconv.FormatUint(fresh, 10)
			fresh++
		}
		lifted := slices.Insert(path, next, thisStage, numbers[id])
		out[types.ResourceName(strings.Join(lifted, "/"))] = containerRequests[name]
		modified = true
	}
	if !modified {
		return false, containerRequests
	}
	return true, out
}

func segments(name types.ResourceName) []string {
	return strings.Split(string(name), "/")
}

// levelIndex returns the position of stage among the levels of path, or -1. Levels and instances
// alternate after the group prefix, so an instance that happens to be called like a level is none.
// A level has an instance behind it and something behind that.
func levelIndex(path []string, stage string) int {
	first := 0
	if len(path) > 2 && path[0]+"/"+path[1] == types.DeviceGroupPrefix {
		first = 2
	}
	for i := first; i+2 < len(path); i += 2 {
		if path[i] == stage {
			return i
		}
	}
	return -1
}

// hasStages reports whether some resource has an instance of thisStage directly above one of
// nextStage.
func hasStages(list types.ResourceList, thisStage, nextStage string) bool {
	for name := range list {
		path := segments(name)
		this := levelIndex(path, thisStage)
		if this >= 0 && this+4 < len(path) && path[this+2] == nextStage {
			return true
		}
	}
	return false
}

// numberAt returns the instance of stage in path, when that is a number.
func numberAt(path []string, stage string) (uint64, bool) {
	i := levelIndex(path, stage)
	if i < 0 {
		return 0, false
	}
	number, err := strconv.ParseUint(path[i+1], 10, 63)
	return number, err == nil
}
