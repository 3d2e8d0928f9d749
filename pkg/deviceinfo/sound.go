// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import "github.com/kubedevice/kubedevice/pkg/sdk/types"

// sound reports whether DecodePod reads what encode writes of the pod, its length aside. It is the
// short way: only DecodePod says what is wrong with a pod that is not sound.
func sound(pod *types.PodInfo) bool {
	return soundName(pod.Name) && soundName(pod.NodeName) && soundQuantities(pod.Requests) &&
		soundContainers(pod.InitContainers) && soundContainers(pod.RunningContainers)
}

// soundName has the name of a pod or a node, which may be absent.
func soundName(name string) bool { return name == "" || checkName("", name) == nil }

func soundContainers(containers map[string]types.ContainerInfo) bool {
	for name, info := range containers {
		if checkName("", name) != nil || !soundQuantities(info.Requests) || !soundQuantities(info.DevRequests) ||
			!soundQuantities(info.Scorer) {
			return false
		}
		for request, from := range info.AllocateFrom {
			if checkResource("", string(request)) != nil || checkResource("", string(from)) != nil {
				return false
			}
		}
	}
	return true
}

func soundQuantities[L ~map[types.ResourceName]N, N int32 | int64](list L) bool {
	for name, quantity := range list {
		if quantity < 0 || checkResource("", string(name)) != nil {
			return false
		}
	}
	return true
}
