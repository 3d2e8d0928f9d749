// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// PodRequest returns the request of a pod: the requests of its annotation, with every container of
// its spec. written is the annotation as DecodePod reads it, empty for a pod without one;
// PodRequest does not change it, but it shares lists with the result. Restartable init containers
// (sidecars) are among the running ones. KubeRequests are the containers' requests in the spec, in
// base units, rounded up to whole numbers. PodRequest discards the scheduler's fields of the
// annotation.
//
// It does not translate requests; the device scheduler's plugin does.
//
// An annotation with a container that the pod does not have, or has in the other list, is an error
// of type *Error.
func PodRequest(pod *corev1.Pod, written *types.PodInfo) (*types.PodInfo, error) {
	info := &types.PodInfo{
		Name: pod.Name, Requests: written.Requests,
		InitContainers: written.InitContainers, RunningContainers: written.RunningContainers,
	}
	if err := addSpec(info, &pod.Spec); err != nil {
		return nil, err
	}
	for _, containers := range []map[string]types.ContainerInfo{info.InitContainers, info.RunningContainers} {
		for name, container := range containers {
			container.DevRequests, container.AllocateFrom = nil, nil
			containers[name] = container
		}
	}
	return info, nil
}

// addSpec adds the containers of a pod's spec to info, which must have no others.
func addSpec(info *types.PodInfo, spec *corev1.PodSpec) error {
	initial, running := map[string]types.ContainerInfo{}, map[string]types.ContainerInfo{}
	add := func(to, from map[string]types.ContainerInfo, container *corev1.Container) {
		merged := from[container.Name]
		merged.KubeRequests = kubeRequests(container)
		to[container.Name] = merged
	}
	for i := range spec.InitContainers {
		if container := &spec.InitContainers[i]; IsSidecar(container) {
			add(running, info.RunningContainers, container)
		} else {
			add(initial, info.InitContainers, container)
		}
	}
	for i := range spec.Containers {
		add(running, info.RunningContainers, &spec.Containers[i])
	}
	return setContainers(info, initial, running)
}

// setContainers makes the containers of info those of the pod's spec, and returns an error if info
// has others.
func setContainers(info *types.PodInfo, initial, running map[string]types.ContainerInfo) error {
	if err := checkContainers("initcontainer", info.InitContainers, initial, running); err != nil {
		return err
	}
	if err := checkContainers("runningcontainer", info.RunningContainers, running, initial); err != nil {
		return err
	}
	info.InitContainers, info.RunningContainers = initial, running
	return nil
}

// checkContainers checks that the containers of one of the annotation's lists are in the pod, and
// not in the other list.
func checkContainers(list string, have, want, other map[string]types.ContainerInfo) error {
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if _, ok := want[name]; ok {
			continue
		}
		problem := "the pod has no such container"
		fix := fmt.Sprintf("use one of the names in the pod's spec: %q", slices.Sorted(maps.Keys(want)))
		if _, ok := other[name]; ok && list == "initcontainer" {
			problem, fix = "the container runs along with the others", "write it under runningcontainer"
		} else if ok {
			problem, fix = "the container is an init container", "write it under initcontainer"
		}
		return &Error{Field: entryPath(list, name), Problem: problem, Fix: fix}
	}
	return nil
}

// IsSidecar reports whether an init container is restartable: once started, it runs along with the
// other containers.
func IsSidecar(container *corev1.Container) bool {
	return container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// kubeRequests returns the requests of a container's spec. A limit replaces an absent request, as
// in the API server.
func kubeRequests(container *corev1.Container) types.ResourceList {
	list := types.ResourceList{}
	for _, resources := range []corev1.ResourceList{container.Resources.Limits, container.Resources.Requests} {
		for name, quantity := range resources {
			list[types.ResourceName(name)] = quantity.Value()
		}
	}
	return list
}
