// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"maps"
	"sync/atomic"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Request is what one pod requests. Its exported fields are immutable; it is safe for concurrent
// use.
type Request struct {
	// Pod is the request as the user wrote it, with every container of the pod.
	Pod *types.PodInfo
	// Containers are the pod's containers in the order of its spec.
	Containers []grouptree.Container
	// Forged says that the pod came with an allocation, which only the scheduler may write. It is
	// not in Pod.
	Forged bool
	// Waited says that the pod has waited for the best devices of all nodes for long enough.
	Waited bool

	began atomic.Pointer[translation]
	parts atomic.Pointer[map[*deviceNames]*translation]
	later atomic.Pointer[Request] // see afterWait
}

// maxParts is how many different parts of a request are kept, of which a cluster has as many as it
// has nodes with different device resources.
const maxParts = 64

// Key returns the request's key. It is computed on the first call.
func (r *Request) Key() RequestKey { return r.begin().key() }

// begin returns the request before any plugin has translated it.
func (r *Request) begin() *translation {
	if began := r.began.Load(); began != nil {
		return began
	}
	r.began.CompareAndSwap(nil, newTranslation(*r.Pod, r.Containers, r.Waited))
	return r.began.Load()
}

// on returns the part of the request that is for devices of the node with this inventory.
func (r *Request) on(inventory *Inventory) *translation {
	if inventory.undemanding && !r.Waited {
		return r.afterWait().on(inventory)
	}
	kept := r.parts.Load()
	if kept != nil {
		if part, ok := (*kept)[inventory.devices]; ok {
			return part
		}
	}
	part := r.begin().onlyOf(inventory.devices)
	more := map[*deviceNames]*translation{inventory.devices: part}
	if kept != nil && len(*kept) < maxParts {
		maps.Copy(more, *kept)
	}
	r.parts.CompareAndSwap(kept, &more)
	return part
}

// afterWait returns the request of the pod as if it had waited for the best devices long enough.
func (r *Request) afterWait() *Request {
	if later := r.later.Load(); later != nil {
		return later
	}
	r.later.CompareAndSwap(nil, &Request{Pod: r.Pod, Containers: r.Containers, Forged: r.Forged, Waited: true})
	return r.later.Load()
}

// Empty reports whether the pod requests no device on any node.
func (r *Request) Empty() bool { return r.begin().empty() }

// ByCountOnly reports whether the pod requests devices only by counts of extended resources, if at
// all: where these are not devices, it is a pod like any other.
func (r *Request) ByCountOnly() bool { return r.begin().onlyOf(&deviceNames{}).empty() }
