// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"crypto/sha256"
	"sync/atomic"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request/names"
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
	// Choice says which GPUs the pod may get.
	Choice names.Choice
	// Waited says that the pod has waited for the best devices of all nodes for long enough.
	Waited bool

	content   atomic.Pointer[Content]
	afterWait atomic.Pointer[Request]
	memo      atomic.Value
}

// Content returns the request without the pod's name.
func (r *Request) Content() *Content {
	if content := r.content.Load(); content != nil {
		return content
	}
	r.content.CompareAndSwap(nil, newContent(*r.Pod, r.Containers, r.Waited))
	return r.content.Load()
}

// Key returns the request's key: that of its content, and of its choice of GPUs. That of a request
// for any GPUs is computed on the first call.
func (r *Request) Key() Key {
	key := r.Content().Key()
	if r.Choice.Any() {
		return key
	}
	return sha256.Sum256(append(key[:], r.Choice.Text()...))
}

// Empty reports whether the pod requests no device on any node.
func (r *Request) Empty() bool { return r.Content().Empty() }

// ByCountOnly reports whether the pod requests devices only by counts of extended resources, if at
// all: where these are not devices, it is a pod like any other.
func (r *Request) ByCountOnly() bool {
	return r.Content().Part(func(types.ResourceName) bool { return false }).Empty()
}

// AfterWait returns the request of the pod as if it had waited for the best devices long enough.
func (r *Request) AfterWait() *Request {
	if r.Waited {
		return r
	}
	if after := r.afterWait.Load(); after != nil {
		return after
	}
	r.afterWait.CompareAndSwap(nil, &Request{
		Pod: r.Pod, Containers: r.Containers, Forged: r.Forged, Choice: r.Choice, Waited: true,
	})
	return r.afterWait.Load()
}

// Memo returns what derive makes of the request, which must depend on nothing else and be safe for
// concurrent use. It is derived once, and kept with the request. All callers pass the same
// function: that of the package which has plugins translate requests.
func (r *Request) Memo(derive func(*Request) any) any {
	if known := r.memo.Load(); known != nil {
		return known
	}
	r.memo.CompareAndSwap(nil, derive(r))
	return r.memo.Load()
}
