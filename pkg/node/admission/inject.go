// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/cdi"
	"github.com/kubedevice/kubedevice/pkg/node/failpoint"
	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// inject returns what to add to the container, nil if it is nothing, and the outcome of that.
func (a *Admission) inject(
	ctx context.Context, r *request,
) (addition *runtimeapi.ContainerConfig, outcome Outcome, err error) {
	addition, holds, err := a.devicesFor(ctx, r)
	if err != nil {
		return nil, Refused, err
	}
	outcome = Injected
	var expected []firewall.Expected
	if addition == nil {
		addition, outcome = &runtimeapi.ContainerConfig{}, Isolated
	} else {
		expected = a.Runtimes.Expected(addition)
	}
	if err := a.neutralise(ctx, r, holds, addition); err != nil {
		return nil, Refused, err
	}
	if err := a.checkCDI(addition); err != nil {
		return nil, Refused, err
	}
	if outcome == Isolated && len(addition.GetEnvs()) == 0 {
		return nil, Passed, nil
	}
	if len(expected) > 0 && a.DeviceChecker != nil {
		a.DeviceChecker.Expect(r.object(), r.container, expected)
	}
	return addition, outcome, nil
}

// devicesFor returns what to add to the container for its devices, and those; nil if it has none.
func (a *Admission) devicesFor(
	ctx context.Context, r *request,
) (delta *runtimeapi.ContainerConfig, holds types.ResourceLocation, err error) {
	if r.granted == nil || r.keepsKubelets {
		return nil, nil, nil
	}
	claim, err := a.claimOf(ctx, r)
	if err != nil {
		a.Waiting.note(r, err)
		return nil, nil, err
	}
	a.Waiting.forget(r)
	if err := a.verifyKubelets(ctx, r, claim.Container.AllocateFrom); err != nil {
		return nil, nil, err
	}
	if len(claim.Container.AllocateFrom) == 0 {
		return nil, nil, nil
	}
	additions, err := a.Devices.Allocate(ctx, claim)
	if err != nil {
		return nil, nil, unavailable(err)
	}
	failpoint.Reach(failpoint.PluginCalled)
	if a.ShareLimits != nil {
		limits, limited, err := a.ShareLimits.Limit(claim)
		if err != nil {
			return nil, nil, failedPrecondition(fmt.Errorf("container %q: %w", r.container, err))
		}
		if limited {
			additions = append(additions, limits)
		}
	}
	delta, leftOut, err := inject.Merge(a.HostFS, r.config, additions)
	if err != nil {
		a.dropResponses(ctx, r, err)
		return nil, nil, failedPrecondition(fmt.Errorf("container %q: %w", r.container, err))
	}
	if err := a.checkCDI(delta); err != nil {
		if !errors.Is(err, cdi.ErrUnknown) {
			a.dropResponses(ctx, r, err)
		}
		return nil, nil, err
	}
	if err := checkAnnotations(r.container, delta.GetAnnotations()); err != nil {
		a.dropResponses(ctx, r, err)
		return nil, nil, err
	}
	a.warnLeftOut(r, leftOut)
	encoded, err := a.Grants.EncodePart(*r.granted, r.container)
	if err != nil {
		return nil, nil, failedPrecondition(err)
	}
	if delta.Annotations == nil {
		delta.Annotations = map[string]string{}
	}
	delta.Annotations[grants.Annotation] = encoded
	return delta, claim.Container.AllocateFrom, checkAnnotations(r.container, delta.GetAnnotations())
}

// warnLeftOut says on the pod which parts of what device plugins answered its container lacks.
func (a *Admission) warnLeftOut(r *request, leftOut []string) {
	for _, text := range leftOut {
		a.Events.WarnLeftOut(r.object(), clip(fmt.Sprintf("container %q: %s", r.container, text)))
	}
}

// claimOf returns what the device plugins are called with for the container, whose devices are
// verified. It has no devices if the container has none.
func (a *Admission) claimOf(ctx context.Context, r *request) (plugins.Claim, error) {
	pod := r.granted.PodInfo.Clone() // verifyContainer may rename devices
	container := pod.GetContainerInPod(r.container)
	if container == nil {
		// Debug containers, for one, are in no allocation.
		container = types.NewContainerInfo()
	}
	// Devices may be gone when a container starts again.
	if now, _ := a.Devices.Inventory(); r.verified != (verification{r.granted.PodInfo, now}) {
		if err := a.verifyContainer(ctx, r.spec, r.container, container.AllocateFrom); err != nil {
			return plugins.Claim{}, err
		}
	}
	return plugins.Claim{PodUID: r.uid, ContainerName: r.container, Pod: pod, Container: container}, nil
}

// checkAnnotations refuses a container that would carry too much in the runtime. What it carries of
// an allocation was checked with that; a larger one was granted by a release that had no such
// limit, and its containers start again as they did.
func checkAnnotations(container string, added map[string]string) error {
	size := 0
	for key, value := range added {
		if key != grants.Annotation || len(value) <= deviceinfo.MaxContainerBytes {
			size += len(key) + len(value)
		}
	}
	if size > deviceinfo.MaxContainerBytes {
		return failedPrecondition(fmt.Errorf("container %q: the annotations that it gets for its devices have %d "+
			"bytes, and at most %d are allowed: request fewer devices in one container, or change the device plugin",
			container,
			size, deviceinfo.MaxContainerBytes))
	}
	return nil
}

// checkCDI refuses CDI devices where the runtime would ignore them: the container would start
// without.
func (a *Admission) checkCDI(delta *runtimeapi.ContainerConfig) error {
	if len(delta.GetCDIDevices()) == 0 {
		return nil
	}
	err := a.CDI.Check()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, cdi.ErrUnknown):
		return unavailable(err)
	default:
		return failedPrecondition(fmt.Errorf("CDI device %q: %w", delta.GetCDIDevices()[0].GetName(), err))
	}
}
