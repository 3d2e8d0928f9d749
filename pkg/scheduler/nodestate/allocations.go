// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// knownAllocation is what a bound pod holds, see heldBy, if that needs no reading: it has no Holder
// for a pod that holds nothing.
func (c *Cache) knownAllocation(pod *v1.Pod, inv *inventory, last *state) (held holder, known bool) {
	annotation := pod.Annotations[deviceinfo.Annotation]
	unread := deviceinfo.MayAllocate(annotation) && (last == nil || last.present[pod.UID].annotation != annotation)
	if !unread && inv.verifier != nil {
		_, verified := c.seals.Get(sealedOf(inv.verifier, pod))
		unread = !verified
	}
	if unread {
		return c.allocations.For(len(annotation)).Get(allocationKey{pod.UID, pod.ResourceVersion, inv.revision})
	}
	held, _ = c.heldBy(pod, inv, last)
	return held, true
}

// readAllocation is heldBy, and makes what it returns known.
func (c *Cache) readAllocation(pod *v1.Pod, inv *inventory, last *state) holder {
	held, _ := c.heldBy(pod, inv, last)
	cached := c.allocations.For(len(pod.Annotations[deviceinfo.Annotation]))
	cached.Add(allocationKey{pod.UID, pod.ResourceVersion, inv.revision}, held)
	return held
}
