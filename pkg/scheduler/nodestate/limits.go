// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// What a pod that requests devices may have at most. Reading it, and handing it to plugins, takes
// as long for everybody who waits behind it: with this much, some milliseconds once.
const (
	// MaxRequestBytes is the longest annotation of a pod that is not bound: requests for 64 GPUs
	// in groups take 6 KiB.
	MaxRequestBytes = 32 << 10
	// MaxPodContainers is the number of its containers, those included that request nothing.
	MaxPodContainers = 256
)

// checkSize returns an error for a pod that requests devices and is too large. annotation is the
// pod's.
func checkSize(pod *v1.Pod, annotation string) error {
	if count := len(pod.Spec.InitContainers) + len(pod.Spec.Containers); count > MaxPodContainers {
		return fmt.Errorf("the pod requests devices and has %d containers, more than %d: make several pods of it",
			count, MaxPodContainers)
	}
	if len(annotation) > MaxRequestBytes {
		return fmt.Errorf("annotation %s is %d bytes long, a pod may request devices in %d at most: request fewer, "+
			"in fewer containers, or use shorter names", deviceinfo.Annotation, len(annotation), MaxRequestBytes)
	}
	return nil
}

// checkRequests returns an error for an annotation that makes more requests, or makes them in more
// containers, than can be placed.
func checkRequests(written *sdk.PodInfo) error {
	requests, containers := len(written.Requests), 0
	for _, list := range []map[string]sdk.ContainerInfo{written.InitContainers, written.RunningContainers} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if len(list[name].Requests) == 0 {
				continue
			}
			containers++
			if requests += len(list[name].Requests); requests > grouptree.MaxRequests {
				return fmt.Errorf("annotation %s: container %q: the pod makes more than %d device requests: "+
					"ask for fewer", deviceinfo.Annotation, name, grouptree.MaxRequests)
			}
			if containers > grouptree.MaxContainers {
				return fmt.Errorf("annotation %s: container %q: more than %d containers of the pod request devices: "+
					"request them in fewer containers", deviceinfo.Annotation, name, grouptree.MaxContainers)
			}
		}
	}
	return nil
}
