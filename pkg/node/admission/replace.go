// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/failpoint"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// errNoSeals is why no allocation takes the place of another one: nobody can tell who wrote it.
var errNoSeals = errors.New("seals are not enforced on this node")

// Replace takes the next generation of a pod's allocation, if the pod carries one. It must have a
// seal of a higher generation than what was granted, may give other devices only to containers for
// which this node has requested some, and only healthy ones that no other pod holds. What
// containers hold that run is not changed here.
func (a *Admission) Replace(ctx context.Context, granted grants.Allocation) grants.Answer {
	spec, known := a.Pods.Get(granted.PodUID)
	if !known {
		return grants.Answer{State: grants.AnswerAbsent, Generation: granted.Generation, Allocation: granted}
	}
	return a.replace(ctx, granted, spec)
}

// takeAnswer is Replace for a container that is about to be created: the kubelet may know the
// allocation before the watch delivers it. It returns what the pod has then.
func (a *Admission) takeAnswer(ctx context.Context, r *request, granted grants.Allocation) grants.Allocation {
	spec, known := a.Pods.Get(r.uid)
	if !known {
		return granted
	}
	spec.Seal, spec.Allocation = r.seal, r.annotations[deviceinfo.Annotation]
	answer := a.replace(ctx, granted, spec)
	if answer.Reason != nil {
		klog.FromContext(ctx).V(2).Info("A container keeps the devices that it was granted", logkey.Pod, r.objectRef(),
			logkey.Container, r.container, logkey.Reason, answer.Reason.Error())
	}
	return answer.Allocation
}

// replace is Replace for a pod as it is known now.
func (a *Admission) replace(ctx context.Context, granted grants.Allocation, spec pods.Pod) grants.Answer {
	answer := grants.Answer{State: grants.AnswerAbsent, Generation: granted.Generation, Allocation: granted}
	claimed, generation, err := a.verifyAnswer(granted, spec)
	if err != nil {
		answer.State, answer.Reason = grants.AnswerUnverified, err
		return answer
	}
	if generation <= granted.Generation {
		return answer
	}
	answer.State, answer.Generation = grants.AnswerTaken, generation
	if answer.Allocation, err = a.take(ctx, granted, claimed, generation, spec); err != nil {
		answer.State, answer.Allocation, answer.Reason = grants.AnswerRefused, granted, err
	}
	return answer
}

// verifyAnswer returns the allocation that the pod carries, and the generation that the scheduler
// has sealed it with; generation 0 if it carries no seal.
func (a *Admission) verifyAnswer(
	granted grants.Allocation, spec pods.Pod,
) (claimed *types.PodInfo, generation int64, err error) {
	if spec.Seal == "" {
		return nil, 0, nil
	}
	if a.sealMode() != seal.Enforce {
		return nil, 0, errNoSeals
	}
	written, err := deviceinfo.DecodePod(spec.Allocation)
	if err != nil {
		return nil, 0, err
	}
	if claimed, err = spec.BoundTo(a.NodeName).Allocation(written); err != nil {
		return nil, 0, err
	}
	verifier, err := a.Seals.Verifier()
	if err != nil {
		return nil, 0, err
	}
	generation, err = verifier.Generation(spec.Seal, seal.Decision{
		UID: apitypes.UID(granted.PodUID), Namespace: spec.Namespace, Name: spec.Name, Node: a.NodeName,
		Allocation: seal.DigestOf(claimed),
	})
	return claimed, generation, err
}

// take grants what a verified answer gives.
func (a *Admission) take(
	ctx context.Context, granted grants.Allocation, claimed *types.PodInfo, generation int64, spec pods.Pod,
) (grants.Allocation, error) {
	replaced, err := a.replacedContainers(ctx, granted, claimed, spec)
	if err != nil {
		return granted, fmt.Errorf("generation %d of the allocation of pod %q: %w", generation, granted.Pod(), err)
	}
	failpoint.Reach(failpoint.Replacing)
	for name := range replaced {
		// What the kubelet's device plugins said is about the previous devices. Not afterwards: the
		// program may end in between.
		if _, err := a.Responses.Drop(granted.PodUID, name); err != nil {
			return granted, err
		}
	}
	inventory, _ := a.Devices.Inventory()
	now, err := a.Grants.Replace(grants.Replacement{
		PodUID: granted.PodUID, Generation: generation, Containers: replaced,
	}, inventory.Grantable)
	if err != nil {
		return granted, err
	}
	failpoint.Reach(failpoint.Replaced)
	klog.FromContext(ctx).Info("Other devices are allocated to containers of a pod", logkey.Pod, granted.Pod(),
		logkey.PodUID,
		granted.PodUID, logkey.Generation, generation, logkey.Containers, slices.Sorted(maps.Keys(replaced)))
	return now, nil
}

// replacedContainers returns the containers to which the claimed allocation gives other devices
// than they were granted, once all is verified.
func (a *Admission) replacedContainers(
	ctx context.Context, granted grants.Allocation, claimed *types.PodInfo, spec pods.Pod,
) (map[string]types.ContainerInfo, error) {
	if granted.Adopted {
		return nil, errors.New("the kubelet gave the pod its devices")
	}
	if err := deviceinfo.CheckContainers(claimed); err != nil {
		return nil, err
	}
	had, has := containersOf(granted.PodInfo), containersOf(withoutRequests(claimed))
	for name := range had {
		if _, still := has[name]; !still {
			return nil, fmt.Errorf("it does not have container %q", name)
		}
	}
	replaced := map[string]types.ContainerInfo{}
	for _, name := range slices.Sorted(maps.Keys(has)) {
		if granted.Lacks(name) || sameDevices(had[name], has[name]) {
			continue
		}
		if _, requested := granted.Pending[name]; !requested {
			return nil, fmt.Errorf("it gives container %q other devices, and this node did not request any", name)
		}
		if err := a.wellFormed(name, has[name], spec.Requests[name]); err != nil {
			return nil, err
		}
		if err := a.verifyContainer(ctx, spec, name, has[name].AllocateFrom); err != nil {
			return nil, err
		}
		replaced[name] = has[name]
	}
	return replaced, nil
}

// sameDevices reports whether both have the same of the same devices. Requests may have other
// names, and groups, too.
func sameDevices(a, b types.ContainerInfo) bool {
	first, other := quantitiesOf(a), quantitiesOf(b)
	if len(first) != len(other) {
		return false
	}
	for name, quantity := range first {
		match := grants.CurrentName(maps.Keys(other), name)
		if there, ok := other[match]; !ok || there != quantity {
			return false
		}
	}
	return true
}

// quantitiesOf returns what the container has of each resource.
func quantitiesOf(container types.ContainerInfo) types.ResourceList {
	sums := types.ResourceList{}
	for request, from := range container.AllocateFrom {
		sums[from] += container.DevRequests[request]
	}
	return sums
}
