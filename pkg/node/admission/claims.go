// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Claims grants a pod its devices before its containers are created, and returns what the device
// plugins can be called with already, in the order of the containers' names: a frontend
// that has little time may call them in advance. A container that shares a device with another
// container of the pod has no claim here: what a plugin does to the device when one is about to
// start would disturb the other. It returns none for an adopted pod, and for one that is no device
// pod. The pod's owner does not hear of an error, which comes again when a container is created.
func (a *Admission) Claims(ctx context.Context, pod Pod) ([]plugins.Claim, error) {
	r := &request{podRef: newPodRef(pod)}
	devicePod, err := a.verify(ctx, r)
	if err != nil || !devicePod {
		return nil, err
	}
	if err := a.grant(ctx, r); err != nil || r.granted.Adopted {
		return nil, err
	}
	containers := containersOf(r.granted.PodInfo)
	holders := map[types.ResourceName]int{}
	for _, container := range containers {
		for name := range maps.Values(container.AllocateFrom) {
			holders[name]++
		}
	}
	shared := func(name types.ResourceName) bool { return holders[name] > 1 }
	var claims []plugins.Claim
	for _, name := range slices.Sorted(maps.Keys(containers)) {
		from := slices.Collect(maps.Values(containers[name].AllocateFrom))
		if len(from) == 0 || slices.ContainsFunc(from, shared) {
			continue
		}
		r.container = name
		claim, err := a.claimOf(ctx, r)
		if err != nil {
			return nil, err
		}
		claims = append(claims, claim)
	}
	return claims, nil
}
