// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/failpoint"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// change returns what to add to a container, or nil for nothing, and what that makes of its creation. d is nil if the pod asks
// for no devices.
func (g *Gate) change(ctx context.Context, s subject, d *decision, config *runtimeapi.ContainerConfig) (*runtimeapi.ContainerConfig, Outcome, error) {
	var delta *runtimeapi.ContainerConfig
	var holds types.ResourceLocation
	outcome := Passed
	if d != nil {
		var err error
		if delta, holds, err = g.devicesFor(ctx, s, d, config); err != nil {
			return nil, Refused, err
		}
	}
	if delta != nil {
		outcome = Injected
	}
	deny, err := g.denyEnvs(ctx, s, config, holds)
	if err != nil {
		return nil, Refused, err
	}
	if delta == nil && len(deny) > 0 {
		delta, outcome = &runtimeapi.ContainerConfig{}, Isolated
	}
	isolate(delta, deny)
	return delta, outcome, nil
}

// devicesFor returns what to add to a container of a device pod and the devices that it holds, or nothing if it has none.
func (g *Gate) devicesFor(ctx context.Context, s subject, d *decision, config *runtimeapi.ContainerConfig) (*runtimeapi.ContainerConfig, types.ResourceLocation, error) {
	name := config.GetMetadata().GetName()
	allocated := d.grant.PodInfo.Clone()
	container := allocated.GetContainerInPod(name)
	if container == nil {
		// Debug containers, for one, are in no allocation.
		container = types.NewContainerInfo()
	}
	// A container that starts again may find its devices gone.
	if err := g.present(ctx, container.AllocateFrom); err != nil {
		return nil, nil, err
	}
	if err := g.served(d.pod, name, container.AllocateFrom); err != nil {
		return nil, nil, err
	}
	if len(container.AllocateFrom) == 0 {
		return nil, nil, nil
	}
	additions, err := g.Devices.Allocate(ctx, plugins.Claim{PodUID: s.uid, ContainerName: name, Pod: allocated, Container: container})
	if err != nil {
		return nil, nil, later(err)
	}
	failpoint.Reach(failpoint.PluginCalled)
	delta, err := inject.Merge(g.Host, config, additions)
	if err != nil {
		g.renewIfGone(ctx, s, name, err)
		return nil, nil, never(fmt.Errorf("container %q: %w", name, err))
	}
	if err := g.honoured(delta); err != nil {
		return nil, nil, err
	}
	carried, err := deviceinfo.EncodePod(d.grant.PodInfo)
	if err != nil {
		return nil, nil, never(err)
	}
	if delta.Annotations == nil {
		delta.Annotations = map[string]string{}
	}
	delta.Annotations[grants.Annotation] = carried
	return delta, container.AllocateFrom, nil
}

// served demands that the container is given something by the plugin behind each extended resource of a device plugin that
// it asks for: a container that asks for two kinds of devices must not start with one.
func (g *Gate) served(pod pods.Pod, container string, from types.ResourceLocation) error {
	inventory, _ := g.Devices.Inventory()
	resources, _ := g.deviceResources()
	for _, asked := range pod.ContainerAsksFor(container, resources) {
		if !inventory.Serves(types.ResourceName(asked), from) {
			return never(fmt.Errorf("container %q asks for %s, but the pod's allocation gives it no device of the plugin behind that; %s",
				container, asked, scheduleAgain))
		}
	}
	return nil
}
