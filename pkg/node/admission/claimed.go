// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// Claimed returns what the pods will be granted when their first container is created, next to what
// was granted before: the kubelet's agents read which devices a pod has while its sandbox is
// created. The allocations are verified as for a container. A pod is left out if its allocation
// cannot be verified now, or names devices of other pods.
//
// Claimed grants nothing, does not wait, reports nothing, and remembers no refusal: the pod may be
// none of this node's device pods, which is decided when its container is created.
func (a *Admission) Claimed(podUIDs []string, granted []grants.Allocation) []grants.Allocation {
	has := make(map[string]bool, len(granted))
	for i := range granted {
		has[granted[i].PodUID] = true
	}
	var claims []grants.Allocation
	for _, uid := range podUIDs {
		if has[uid] {
			continue
		}
		if claim, ok := a.claimed(uid); ok {
			claims = append(claims, claim)
		}
	}
	inventory, _ := a.Devices.Inventory()
	return grants.Grantable(claims, granted, inventory.Grantable)
}

// claimed returns the verified allocation of a pod.
func (a *Admission) claimed(uid string) (claim grants.Allocation, ok bool) {
	spec, known := a.Pods.Get(uid)
	if !known || !strings.Contains(spec.Allocation, allocated) {
		return grants.Allocation{}, false
	}
	r := &request{spec: spec, podRef: newPodRef(Pod{
		UID: uid, Namespace: spec.Namespace, Name: spec.Name,
		Annotations: map[string]string{
			sourceAnnotation: sourceAPI, deviceinfo.Annotation: spec.Allocation, seal.Annotation: spec.Seal,
		},
	})}
	atOnce, cancel := context.WithCancel(context.Background())
	cancel()
	if a.remembered(r.podRef) != nil || a.verifyClaim(atOnce, r, a.hasSeal) != nil || !allocates(r.claimed) {
		return grants.Allocation{}, false
	}
	return allocationOf(r), true
}

// hasSeal is verifySeal without its reports.
func (a *Admission) hasSeal(r *request) error {
	mode := a.sealMode()
	if mode == seal.Off {
		return nil
	}
	if _, err := a.checkSeal(r); mode == seal.Enforce {
		return err
	}
	return nil
}
