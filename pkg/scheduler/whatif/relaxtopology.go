// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"maps"

	v1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	path "github.com/kubedevice/kubedevice/pkg/sdk/resource"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// topologyOption is the annotation's request by which users say how counted devices are connected:
// 1 requires the best topology, 0 is for devices anywhere, and without it the cluster decides.
const topologyOption sdk.ResourceName = "gpu/gpu-generate-topology"

func isTopology(name sdk.ResourceName) bool {
	return path.WithPrefix(name) == path.WithPrefix(topologyOption)
}

// topologyRelaxations returns the weaker forms of what a pod that counts devices says of topology:
// nothing in place of 1, then 0.
func topologyRelaxations(pod *v1.Pod) [][]change {
	written := sdk.NewPodInfo()
	if annotation, ok := pod.Annotations[deviceinfo.Annotation]; ok {
		decoded, err := deviceinfo.DecodePod(annotation)
		if err != nil {
			return nil
		}
		written = decoded
	}
	// One device is connected to none, but where another plugin or the kubelet serves the count,
	// the request alone keeps the pod from the node.
	required := withoutTopology(written)
	if !required && !countsDevices(pod, written) {
		return nil
	}
	weaker := []change{{
		text: "with the annotation's request " + string(topologyOption) + " 0", topology: true,
		make: func(pod *v1.Pod) {
			edit(pod, func(info *sdk.PodInfo) {
				withoutTopology(info)
				info.Requests = maps.Clone(info.Requests)
				if info.Requests == nil {
					info.Requests = sdk.ResourceList{}
				}
				info.Requests[topologyOption] = 0
			})
		},
	}}
	if required {
		weaker = append([]change{{
			text: "without the annotation's request " + string(topologyOption), topology: true,
			make: func(pod *v1.Pod) { edit(pod, func(info *sdk.PodInfo) { withoutTopology(info) }) },
		}}, weaker...)
	}
	return [][]change{weaker}
}

// countsDevices reports whether a container counts several of an extended resource.
func countsDevices(pod *v1.Pod, written *sdk.PodInfo) (counts bool) {
	eachContainer(pod, func(c *v1.Container) {
		for name, quantity := range c.Resources.Requests {
			counts = counts || path.IsExtendedResource(sdk.ResourceName(name)) && quantity.Value() > 1
		}
	})
	for _, container := range written.Containers() {
		for name, quantity := range container.Requests {
			counts = counts || path.IsExtendedResource(name) && quantity > 1
		}
	}
	return counts
}

// withoutTopology removes what is written of topology, and reports whether any of it was not 0.
func withoutTopology(info *sdk.PodInfo) (any bool) {
	remove := func(list sdk.ResourceList) {
		maps.DeleteFunc(list, func(name sdk.ResourceName, value int64) bool {
			any = any || isTopology(name) && value != 0
			return isTopology(name)
		})
	}
	remove(info.Requests)
	for _, container := range info.Containers() {
		remove(container.Requests)
	}
	return any
}

// edit changes a pod's annotation.
func edit(pod *v1.Pod, modify func(*sdk.PodInfo)) {
	info := sdk.NewPodInfo()
	if annotation, ok := pod.Annotations[deviceinfo.Annotation]; ok {
		decoded, err := deviceinfo.DecodePod(annotation)
		if err != nil {
			return
		}
		info = decoded
	}
	modify(info)
	annotation, err := deviceinfo.EncodePod(info)
	if err != nil {
		return
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[deviceinfo.Annotation] = annotation
}
