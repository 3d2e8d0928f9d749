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

// pattern is a node's GPU in both levels of groups. All nodes are lifted to it, so all requests
// are.
const pattern = types.DeviceGroupPrefix + "/" + gpu.Wide + "/0/" + gpu.Close + "/0/" + gpu.Level + "/0/" + gpu.Cards

// devicePath returns the full name of a request for GPUs, which users may write without the prefix.
// ok is false for requests for anything else. A name that is malformed counts as a request for GPUs
// when it has one of their levels, so that the group scheduler refuses it.
func devicePath(name types.ResourceName) (full types.ResourceName, ok bool) {
	full = resource.WithPrefix(name)
	path := strings.Split(string(full), "/")
	return full, index(path, gpu.Wide) >= 0 || index(path, gpu.Close) >= 0 || index(path, gpu.Level) >= 0
}

// lift returns the name that each request has on a node with both levels of groups.
func lift(list types.ResourceList) map[types.ResourceName]types.ResourceName {
	names := slices.Sorted(maps.Keys(list))
	numbered := make(types.ResourceList, len(names))
	for i, name := range names {
		numbered[name] = int64(i)
	}
	node := types.ResourceList{pattern: 1}
	_, numbered = resource.TranslateResource(node, numbered, gpu.Close, gpu.Level)
	_, numbered = resource.TranslateResource(node, numbered, gpu.Wide, gpu.Close)
	lifted := make(map[types.ResourceName]types.ResourceName, len(names))
	for name, i := range numbered {
		lifted[names[i]] = name
	}
	return lifted
}
