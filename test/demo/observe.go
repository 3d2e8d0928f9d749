// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// observation is what the two sides say of one running pod.
type observation struct {
	pod, node string
	annotated bool
	// paths are the resources of the node that the scheduler chose, chosen the devices that they belong to.
	paths, chosen []string
	// sees are the devices that the container finds, refused those of the node's others that it cannot open.
	sees, refused []string
}

// look asks the pod's annotation, and the container from inside.
//
// Inside, a device that was given opens as far as the driver: there is none behind the simulated devices, so the kernel
// answers ENXIO. One that was not given is refused before that, with EPERM, even through a node that the container makes
// for itself.
func (d *demo) look(ctx context.Context, pod *corev1.Pod) (observation, error) {
	seen := observation{pod: pod.Name, node: pod.Spec.NodeName}
	if _, seen.annotated = pod.Annotations[deviceinfo.Annotation]; seen.annotated {
		allocation, err := deviceinfo.PodAllocation(pod)
		if err != nil {
			return seen, err
		}
		for _, container := range allocation.RunningContainers {
			for _, path := range container.AllocateFrom {
				seen.paths = append(seen.paths, string(path))
			}
		}
		slices.Sort(seen.paths)
		seen.chosen = deviceIDs(seen.paths)
	}

	listed, err := d.cluster.Kubectl(ctx, "exec", pod.Name, "--", "sh", "-c", "ls "+deviceFolder+" 2>/dev/null || true")
	if err != nil {
		return seen, err
	}
	seen.sees = strings.Fields(listed)

	for id, number := range d.deviceNumbers(pod.Spec.NodeName) {
		if slices.Contains(seen.sees, id) {
			if answer, err := d.open(ctx, pod, deviceFolder+"/"+id); err != nil || strings.Contains(answer, "not permitted") {
				return seen, fmt.Errorf("pod %s cannot open the device %s that it was given: %s%w", pod.Name, id, answer, err)
			}
			continue
		}
		node := "/tmp/" + id
		if _, err := d.cluster.Kubectl(ctx, "exec", pod.Name, "--", "mknod", node, "c", number.major, number.minor); err != nil {
			return seen, err
		}
		answer, err := d.open(ctx, pod, node)
		if err != nil {
			return seen, err
		}
		if !strings.Contains(answer, "not permitted") {
			return seen, fmt.Errorf("pod %s opened the device %s that it was not given: %s", pod.Name, id, answer)
		}
		seen.refused = append(seen.refused, id)
	}
	return seen, nil
}

// deviceIDs returns the devices that resources such as …/gpu/<id>/cards belong to.
func deviceIDs(paths []string) []string {
	ids := map[string]bool{}
	for _, path := range paths {
		if _, after, found := strings.Cut(path, "/gpu/"); found {
			id, _, _ := strings.Cut(after, "/")
			ids[id] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}
