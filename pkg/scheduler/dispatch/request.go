// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
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
	// Counted are the containers that request a device by count, with the plain names they use.
	Counted map[string][]types.ResourceName
	// Forged says that the pod came with an allocation, which only the scheduler may write. It is
	// not in Pod.
	Forged bool

	began atomic.Pointer[translation]
}

// Key returns the request's key. It is computed on the first call.
func (r *Request) Key() RequestKey { return r.begin().key() }

// begin returns the request before any plugin has translated it.
func (r *Request) begin() *translation {
	if began := r.began.Load(); began != nil {
		return began
	}
	r.began.CompareAndSwap(nil, newTranslation(*r.Pod, r.Containers, r.Counted))
	return r.began.Load()
}

// Empty reports whether the pod requests no device at all.
func (r *Request) Empty() bool {
	if len(r.Counted)+len(r.Pod.Requests) > 0 {
		return false
	}
	for _, containers := range []map[string]types.ContainerInfo{r.Pod.RunningContainers, r.Pod.InitContainers} {
		for _, container := range containers {
			if len(container.Requests) > 0 {
				return false
			}
		}
	}
	return true
}
