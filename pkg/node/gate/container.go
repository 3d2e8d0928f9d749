// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
)

// devicesFor returns what to add to a container of a device pod, or nil if the container has no devices.
func (g *Gate) devicesFor(ctx context.Context, d *decision, config *runtimeapi.ContainerConfig) (*runtimeapi.ContainerConfig, error) {
	name := config.GetMetadata().GetName()
	allocated := d.grant.Decision.Clone()
	container := allocated.GetContainerInPod(name)
	if container == nil || len(container.AllocateFrom) == 0 {
		// Debug containers, for one, are in no allocation.
		if asked := d.pod.ContainerAsksFor(name, g.deviceResources()); len(asked) > 0 {
			return nil, never(fmt.Errorf("container %q asks for %v, but the pod's allocation gives it no device; %s", name, asked, scheduleAgain))
		}
		return nil, nil
	}
	// A container that starts again may find its devices gone.
	if err := g.present(ctx, container.AllocateFrom); err != nil {
		return nil, err
	}
	additions, err := g.Devices.Allocate(ctx, allocated, container)
	if err != nil {
		return nil, later(err)
	}
	delta, err := inject.Merge(g.Host, config, additions)
	if err != nil {
		return nil, never(fmt.Errorf("container %q: %w", name, err))
	}
	carried, err := deviceinfo.EncodePod(d.grant.Decision)
	if err != nil {
		return nil, never(err)
	}
	delta.Annotations = map[string]string{grants.Annotation: carried}
	return delta, nil
}
