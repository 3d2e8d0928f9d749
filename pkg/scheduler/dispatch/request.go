// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"sync/atomic"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Request is what one pod asks for. Its exported fields are immutable; it is safe for concurrent use.
type Request struct {
	// Pod is the request as the user wrote it, with every container of the pod.
	Pod *types.PodInfo
	// Containers are the pod's containers in the order of its spec.
	Containers []grouptree.Container
	// Counted are the containers that request a device by count, with the plain names they use.
	Counted map[string][]types.ResourceName
	// Forged says that the pod came with an allocation, which only the scheduler may write. It is not in Pod.
	Forged bool

	translations atomic.Pointer[[]translation]
	began        atomic.Pointer[asked]
	key          atomic.Pointer[RequestKey]
}

// asked returns the request as the first plugin is asked for it.
func (r *Request) asked() *asked {
	if at := r.began.Load(); at != nil {
		return at
	}
	r.began.CompareAndSwap(nil, newAsked(r.Pod, r.Containers))
	return r.began.Load()
}

// Empty reports whether the pod asks for no device at all.
func (r *Request) Empty() bool { return len(r.Counted) == 0 && !asks(r.Pod) }

// asks reports whether the annotation asks for anything.
func asks(pod *types.PodInfo) bool {
	if len(pod.Requests) > 0 {
		return true
	}
	for _, containers := range []map[string]types.ContainerInfo{pod.RunningContainers, pod.InitContainers} {
		for _, container := range containers {
			if len(container.Requests) > 0 {
				return true
			}
		}
	}
	return false
}

// container returns the container of that name, whichever list it is in.
func container(pod *types.PodInfo, name string) types.ContainerInfo {
	if info, ok := pod.RunningContainers[name]; ok {
		return info
	}
	return pod.InitContainers[name]
}
