// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/plugincall"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// allocate asks what the container needs for the devices it was given.
func (p *plugin) allocate(ctx context.Context, claim Claim, limit time.Duration) (inject.Addition, error) {
	// Deep copies: the plugin may change and keep what it is given.
	own := (&types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"": *claim.Container}}).Clone().RunningContainers[""]
	pod := claim.Pod.Clone()
	return plugincall.Do(ctx, p.caller, plugincall.Call{Method: "Allocate", Limit: limit}, func() (inject.Addition, error) {
		allocation, err := allocateFrom(p.device, pod, types.FillContainerInfo(&own))
		return inject.Addition{Plugin: p.name, Allocation: allocation}, err
	})
}

// allocateFrom asks for the richest answer that the plugin can give. The result shares nothing with the plugin.
func allocateFrom(from device.Device, pod *types.PodInfo, container *types.ContainerInfo) (device.Allocation, error) {
	if rich, ok := from.(device.Allocator); ok {
		allocation, err := rich.AllocateContainer(pod, container)
		if err != nil || allocation == nil {
			return device.Allocation{}, err
		}
		return device.Allocation{
			Devices: slices.Clone(allocation.Devices), Mounts: slices.Clone(allocation.Mounts), Envs: maps.Clone(allocation.Envs),
			Annotations: maps.Clone(allocation.Annotations), CDIDevices: slices.Clone(allocation.CDIDevices), Links: slices.Clone(allocation.Links),
		}, nil
	}
	mounts, paths, envs, err := from.Allocate(pod, container)
	if err != nil {
		return device.Allocation{}, err
	}
	allocation := device.Allocation{Envs: maps.Clone(envs)}
	for _, path := range paths {
		allocation.Devices = append(allocation.Devices, device.HostDevice{HostPath: path})
	}
	for _, m := range mounts {
		allocation.Mounts = append(allocation.Mounts, device.HostMount{HostPath: m.HostPath, ContainerPath: m.ContainerPath, Readonly: m.Readonly})
	}
	return allocation, nil
}
