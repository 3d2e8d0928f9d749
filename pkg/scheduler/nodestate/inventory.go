// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/request"
	requestnames "github.com/kubedevice/kubedevice/pkg/request/names"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// inventory is what one version of a Node object says of the node's devices, compiled, and how to
// find out who holds them. It is immutable.
type inventory struct {
	source   *v1.Node
	revision uint64                // grows with each compilation, and when the keys of seals change
	devices  *allocation.Inventory // for pods that tolerate no taint
	taints   *taints               // of devices; nil for none
	claimed  map[string]bool       // devices that claims have, see Claims; nil for none
	choices  *choices
	verifier *seal.Verifier                   // of bound pods' seals; nil when they do not count
	reported map[types.UID]*deviceinfo.Holder // what the node says that pods hold
	plain    []sdk.ResourceName               // sorted
	numa     []string                         // the NUMA nodes of devices of kubelet device plugins
	err      error                            // instead of devices
	// retryAt is when to compile again, after an err that may pass and for incomplete devices.
	retryAt time.Time
}

// nodeDeleted stands for the inventory of a node that no longer exists.
var nodeDeleted = &inventory{err: errors.New("node is deleted")}

// sameDevices reports whether two versions of a Node differ in nothing that an inventory is made
// of.
func sameDevices(a, b *v1.Node) bool {
	return a.UID == b.UID && a.Annotations[deviceinfo.Annotation] == b.Annotations[deviceinfo.Annotation] &&
		a.Annotations[deviceinfo.HoldersAnnotation] == b.Annotations[deviceinfo.HoldersAnnotation] &&
		a.Annotations[deviceinfo.DeviceTaintsAnnotation] == b.Annotations[deviceinfo.DeviceTaintsAnnotation] &&
		a.Annotations[deviceinfo.AttributesAnnotation] == b.Annotations[deviceinfo.AttributesAnnotation] &&
		a.Annotations[deviceinfo.ShareEnforcementAnnotation] == b.Annotations[deviceinfo.ShareEnforcementAnnotation] &&
		apiequality.Semantic.DeepEqual(a.Status.Capacity, b.Status.Capacity) &&
		apiequality.Semantic.DeepEqual(a.Status.Allocatable, b.Status.Allocatable)
}

func quantities(list v1.ResourceList) sdk.ResourceList {
	out := make(sdk.ResourceList, len(list))
	for name, quantity := range list {
		out[sdk.ResourceName(name)] = quantity.Value()
	}
	return out
}

// supersedes reports whether the node says that the pod holds devices by a later generation of its
// allocation than the pod carries, of which the seal is valid: somebody has written back an older
// one.
func (inv *inventory) supersedes(pod *v1.Pod) bool {
	reported, ok := inv.reported[pod.UID]
	if !ok || reported.Generation == 0 {
		return false
	}
	sealed, err := inv.verifier.Open(pod.Annotations[seal.Annotation])
	return err == nil && reported.Generation > sealed.Generation
}

// reportedOf returns what the node reports that the pod holds.
func (inv *inventory) reportedOf(pod *v1.Pod, last *state) (holder, bool) {
	reported, ok := inv.reported[pod.UID]
	if !ok {
		return holder{}, false
	}
	if last != nil {
		if known, ok := last.present[pod.UID]; ok && known.reported == reported {
			return known, true
		}
	}
	held := allocation.NewHolder(string(pod.UID), reported.Allocation(pod), request.Containers(pod))
	return holder{Holder: held, reported: reported}, true
}

// devicesFor returns the node's devices as a pod may have them: without those whose taints it does
// not tolerate, and those that it does not choose.
func (inv *inventory) devicesFor(
	ctx context.Context, schedulers *allocation.Set, pod *v1.Pod,
) (*allocation.Inventory, error) {
	tolerated, err := inv.tolerated(ctx, schedulers, pod.Spec.Tolerations)
	choice := requestnames.ChoiceOf(pod)
	if err != nil || choice.Any() {
		return tolerated, err
	}
	return inv.chosen(ctx, schedulers, tolerated, choice)
}

// tolerated returns the node's devices for a pod with these tolerations.
func (inv *inventory) tolerated(
	ctx context.Context, schedulers *allocation.Set, tolerations []v1.Toleration,
) (*allocation.Inventory, error) {
	if inv.taints == nil || len(tolerations) == 0 {
		return inv.devices, nil
	}
	return inv.variant(ctx, schedulers, inv.taints.tolerated(tolerations))
}

// variant returns the node's devices for pods that tolerate a set of taints.
func (inv *inventory) variant(
	ctx context.Context, schedulers *allocation.Set, tolerated uint64,
) (*allocation.Inventory, error) {
	if tolerated == 0 {
		return inv.devices, nil
	}
	if known, ok := inv.taints.variants.Get(tolerated); ok {
		return known, nil
	}
	made := inv.devices
	if restored := inv.taints.restored(tolerated); len(restored) > 0 {
		var err error
		if made, err = schedulers.WithAllocatable(ctx, inv.devices, restored, true); err != nil {
			return nil, err
		}
	}
	if made.Complete() {
		inv.taints.variants.Add(tolerated, made)
	}
	return made, nil
}

// knownFor is devicesFor if that is known at once; nil if not.
func (inv *inventory) knownFor(pod *v1.Pod) *allocation.Inventory {
	tolerated, choice := inv.knownTolerated(pod.Spec.Tolerations), requestnames.ChoiceOf(pod)
	if tolerated == nil || choice.Any() {
		return tolerated
	}
	return inv.knownChoice(tolerated, choice)
}

// knownTolerated is tolerated if that is known at once; nil if not.
func (inv *inventory) knownTolerated(tolerations []v1.Toleration) *allocation.Inventory {
	if inv.taints == nil || len(tolerations) == 0 {
		return inv.devices
	}
	tolerated := inv.taints.tolerated(tolerations)
	if tolerated == 0 {
		return inv.devices
	}
	known, _ := inv.taints.variants.Get(tolerated)
	return known
}
