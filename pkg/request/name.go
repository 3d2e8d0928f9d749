// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// A request in the annotation is one of three:
//
//   - a path, <level>/<placeholder>/…/<resource>: see [IsPath],
//   - a count, the name of an extended resource such as nvidia.com/gpu or smarter-devices/video0:
//     see [IsCount],
//   - an option, any other name: it says how devices are chosen, such as gpu/gpu-generate-topology.

// IsPath reports whether a request is for a device by its path.
func IsPath(request types.ResourceName) bool {
	rest, full := strings.CutPrefix(string(request), types.DeviceGroupPrefix+"/")
	slashes := strings.Count(rest, "/")
	return slashes >= 2 || full && slashes == 0 // a resource of the node itself
}

// IsCount reports whether a request is for a number of devices: it names an extended resource. A
// name in the annotation that begins with a documented level, such as gpu/gpu-generate-topology, is
// an option. In limits each extended resource is a count. A device scheduler may have options of
// other names whose domain has no dot.
func IsCount(request types.ResourceName) bool {
	domain, _, _ := strings.Cut(string(request), "/")
	return resource.IsExtendedResource(request) && !slices.Contains(levels, domain)
}

// levels are those that documents name, and the first segment of the prefix of paths.
var levels = []string{"gpu", "gpugrp0", "gpugrp1", kubeletdevice.Level, "resource"}

// mayBeOption reports whether a device scheduler may have an option of the name of a count.
func mayBeOption(count types.ResourceName) bool {
	domain, _, _ := strings.Cut(string(count), "/")
	return !strings.Contains(domain, ".")
}

// checkName returns an error for a path that is malformed. It says how the path is written.
func checkName(request types.ResourceName) error {
	if !IsPath(request) {
		return nil
	}
	if right, ok := kubeletdevice.Correct(request); ok {
		return fmt.Errorf("%s is not written as a device of a kubelet device plugin: write %s", request, right)
	}
	path, err := resource.ParseRequest(request)
	if err != nil {
		return fmt.Errorf("%s is no path of a device: %w: write <level>/<placeholder>/…/<resource>, such as "+
			"gpugrp0/A/gpu/a/cards or numa/A/nvidia.com:gpu", request, err)
	}
	if selected, ok, _ := kubeletdevice.ParseSelection(request, 1); ok {
		if strings.HasPrefix(selected.NUMA, grouptree.Different) {
			return fmt.Errorf("%s: NUMA nodes that differ from each other cannot be requested: name them, such as "+
				"numa/=0/nvidia.com:gpu and numa/=1/nvidia.com:gpu", request)
		}
		return nil
	}
	for level, instance := range path.Levels() {
		if strings.HasPrefix(instance, kubeletdevice.ByID) {
			return fmt.Errorf("%s: %s cannot be requested by its ID (%s): write a placeholder, such as %s/a. Only "+
				"devices of kubelet device plugins and their NUMA nodes can: numa/A/nvidia.com:gpu/=GPU-7f3a/device",
				request, level, instance, level)
		}
	}
	return nil
}
