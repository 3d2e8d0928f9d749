// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Request is what one pod asks for. It is immutable.
type Request struct {
	// Pod is the request as the user wrote it, with every container of the pod.
	Pod *types.PodInfo
	// Containers are the pod's containers in the order of its spec.
	Containers []grouptree.Container
	// Counted are the containers that request a device by count, with the plain names they use.
	Counted map[string][]types.ResourceName
}

// unserved says which part of the request no device scheduler has taken up in pod, or "".
//
// Without it, a pod whose device scheduler is not loaded would be bound without devices.
func (r *Request) unserved(pod *types.PodInfo) string {
	served := false
	for _, container := range r.Containers {
		info := pod.GetContainerInPod(container.Name)
		if info != nil && len(info.DevRequests)+len(info.AllocateFrom) > 0 {
			served = true
		} else if names := r.Counted[container.Name]; len(names) > 0 {
			return fmt.Sprintf("no device scheduler serves %s of container %q", join(names), container.Name)
		}
	}
	if served {
		return ""
	}
	names := slices.Collect(maps.Keys(r.Pod.Requests))
	for _, container := range r.Containers {
		if info := r.Pod.GetContainerInPod(container.Name); info != nil {
			names = slices.AppendSeq(names, maps.Keys(info.Requests))
		}
	}
	return fmt.Sprintf("no device scheduler makes a device of the requests %s", join(names))
}

func join(names []types.ResourceName) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	slices.Sort(texts)
	return strings.Join(slices.Compact(texts), ", ")
}
