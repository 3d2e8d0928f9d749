// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"github.com/kubedevice/kubedevice/plugins/gpu"
)

// levels are those of GPUs, their groups and their instances, from the outermost to the innermost.
var levels = []string{gpu.Wide, gpu.Close, gpu.Level, gpu.InstanceLevel, gpu.ComputeLevel}

// pattern is an instance of a node's GPU in both levels of groups. All nodes are lifted to it, so
// all requests are.
const pattern = types.DeviceGroupPrefix + "/" + gpu.Wide + "/0/" + gpu.Close + "/0/" + gpu.Level + "/0/" +
	gpu.InstanceLevel + "/0/" + gpu.ComputeLevel + "/0/" + gpu.Cards

// devicePath returns the full name of a request for GPUs, which users may write without the prefix.
// ok is false for requests for anything else. A name that is malformed counts as a request for GPUs
// when it has one of their levels, so that the group scheduler refuses it.
func devicePath(name types.ResourceName) (full types.ResourceName, ok bool) {
	full = resource.WithPrefix(name)
	path := strings.Split(string(full), "/")
	return full, slices.ContainsFunc(levels, func(level string) bool { return index(path, level) >= 0 })
}

// lift returns the name that each request has on a node with all levels.
func lift(list types.ResourceList) map[types.ResourceName]types.ResourceName {
	names := slices.Sorted(maps.Keys(list))
	numbered := make(types.ResourceList, len(names))
	for i, name := range names {
		numbered[name] = int64(i)
	}
	node := types.ResourceList{pattern: 1}
	for i := len(levels) - 2; i >= 0; i-- {
		_, numbered = resource.TranslateResource(node, numbered, levels[i], levels[i+1])
	}
	lifted := make(map[types.ResourceName]types.ResourceName, len(names))
	for name, i := range numbered {
		lifted[names[i]] = name
	}
	return lifted
}
