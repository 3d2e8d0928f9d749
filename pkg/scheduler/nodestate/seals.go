// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// Enforce makes a bound pod hold only what its annotation says under a seal that the verifier
// accepts; without such a seal it holds what the node reports of it in the annotation
// KubeDevice/Holders, which is nothing as a rule. Before the first call the annotation is enough
// for pods that the node does not report. Call it before the first node is observed, and again with
// another verifier when the keys change: then all pods are verified again.
func (c *Cache) Enforce(verifier *seal.Verifier) {
	c.verifier.Store(verifier)
	c.nodes.Range(func(name, _ any) bool {
		c.write(name.(string), func(n *node) {
			if current := n.inventory.Load(); current != nil && current.verifier != verifier {
				next := *current
				next.verifier, next.revision = verifier, c.revisions.Add(1)
				n.inventory.Store(&next)
			}
		})
		return true
	})
}

// Sealed remembers that a seal, which the caller has made for a pod that it binds to a node, is
// valid.
func (c *Cache) Sealed(verifier *seal.Verifier, uid types.UID, annotation, text string) {
	c.seals.Add(sealed{verifier, uid, annotation, text}, nil)
}

// CheckSeal returns why the seal of a bound pod is not valid, as an error of type *seal.Error, or
// nil when it is valid or the pod has no allocation that needs one. Each seal is verified once.
func (c *Cache) CheckSeal(verifier *seal.Verifier, pod *v1.Pod) error {
	if pod.Spec.NodeName == "" || !deviceinfo.MayAllocate(pod.Annotations[deviceinfo.Annotation]) {
		return nil
	}
	known, ok := c.seals.Get(sealedOf(verifier, pod))
	if ok {
		return known
	}
	allocation, err := deviceinfo.PodAllocation(pod)
	if err != nil { // such a pod holds nothing, also with a valid seal
		return nil
	}
	return c.verify(verifier, pod, allocation)
}

// verify verifies the seal of a bound pod, for what its annotation says.
func (c *Cache) verify(verifier *seal.Verifier, pod *v1.Pod, allocation *sdk.PodInfo) error {
	err := verifier.Verify(pod.Annotations[seal.Annotation], seal.Decision{
		UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: pod.Spec.NodeName,
		Allocation: seal.DigestOf(allocation),
	})
	c.seals.Add(sealedOf(verifier, pod), err)
	return err
}

// heldBy returns what a bound pod holds on the node that has this inventory. last is an earlier
// state of the node, which saves decoding what is known; it may be nil.
func (c *Cache) heldBy(pod *v1.Pod, inv *inventory, last *state) (holder, bool) {
	if inv.verifier == nil {
		// What the node granted counts there, and not what the annotation says, which may be of
		// somebody who has no part in it.
		if held, ok := inv.reportedOf(pod, last); ok {
			return held, true
		}
		return allocationOf(pod, last)
	}
	err, known := c.seals.Get(sealedOf(inv.verifier, pod))
	if known && err != nil {
		return inv.reportedOf(pod, last)
	}
	held, ok := allocationOf(pod, last)
	if ok && (known || c.verify(inv.verifier, pod, held.Pod) == nil) && !inv.supersedes(pod) {
		return held, true
	}
	return inv.reportedOf(pod, last)
}

// Held returns what a bound pod holds, or nil for nothing.
func (c *Cache) Held(pod *v1.Pod) *sdk.PodInfo {
	var inv *inventory
	if n := c.find(pod.Spec.NodeName); n != nil {
		inv = n.inventory.Load()
	}
	if inv == nil { // the node is not known yet
		inv = &inventory{verifier: c.verifier.Load()}
	}
	if held, ok := c.heldBy(pod, inv, nil); ok {
		return held.Pod
	}
	return nil
}

// allocationOf reads what a bound pod's annotation says it holds.
func allocationOf(pod *v1.Pod, last *state) (holder, bool) {
	annotation := pod.Annotations[deviceinfo.Annotation]
	if !deviceinfo.MayAllocate(annotation) {
		return holder{}, false
	}
	if last != nil {
		if known, ok := last.present[pod.UID]; ok && known.annotation == annotation {
			return known, true
		}
	}
	allocated, err := deviceinfo.PodAllocation(pod)
	if err != nil {
		return holder{}, false
	}
	held := allocation.NewHolder(string(pod.UID), allocated, request.Containers(pod))
	return holder{Holder: held, annotation: annotation}, true
}
