// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Request returns what the pod asks for, or nil when it asks for no device. A device pod is one
// that has requests in its annotation, or one that requests a resource name which some node's
// inventory lists or a plugin claims. A pod that comes with an allocation and asks for nothing has
// an empty request: it is to be bound without that allocation. The error says why the annotation
// cannot be read.
//
// It is read once for each version of a pod, since queueing hints are requested for each pod that
// waits and each event.
func (c *Cache) Request(pod *v1.Pod) (*dispatch.Request, error) {
	version := podVersion{pod.UID, pod.ResourceVersion, c.plain.revision.Load()}
	if known, ok := c.requests.Get(version); ok {
		return known.Request, known.err
	}
	read := request{}
	read.Request, read.err = c.readRequest(pod)
	c.requests.Add(version, read)
	return read.Request, read.err
}

// podVersion is all that a pod's request depends on: the pod, and which plain names are devices.
type podVersion struct {
	uid     types.UID
	version string
	plain   uint64 // revision of the names
}

// request is what a pod requests, or why that cannot be read.
type request struct {
	*dispatch.Request
	err error
}

func (c *Cache) readRequest(pod *v1.Pod) (*dispatch.Request, error) {
	counted := c.counted(pod)
	annotation := pod.Annotations[deviceinfo.Annotation]
	if len(counted) == 0 && annotation == "" {
		return nil, nil
	}
	written, err := c.read(annotation)
	if err != nil {
		return nil, err
	}
	info, err := deviceinfo.PodRequest(pod, written)
	if err != nil {
		return nil, err
	}
	read := &dispatch.Request{Pod: info, Containers: Containers(pod), Counted: counted, Forged: allocates(written)}
	if read.Empty() && !read.Forged {
		return nil, nil
	}
	return read, nil
}

// MayHold reports whether the pod may hold devices, or be about to. It errs toward true.
func (c *Cache) MayHold(pod *v1.Pod) bool {
	return pod.Annotations[deviceinfo.Annotation] != "" || len(c.counted(pod)) > 0
}

// counted returns the containers that request a device by count, with the names they use.
func (c *Cache) counted(pod *v1.Pod) map[string][]sdk.ResourceName {
	var counted map[string][]sdk.ResourceName
	eachExtended(pod, func(container string, name v1.ResourceName) {
		if !c.Serves(sdk.ResourceName(name)) {
			return
		}
		if counted == nil {
			counted = map[string][]sdk.ResourceName{}
		}
		counted[container] = append(counted[container], sdk.ResourceName(name))
	})
	for _, names := range counted {
		slices.Sort(names)
	}
	return counted
}

// RequestsExtended reports whether the pod requests any extended resource, a device or not.
func RequestsExtended(pod *v1.Pod) bool {
	found := false
	eachExtended(pod, func(string, v1.ResourceName) { found = true })
	return found
}

// eachExtended calls f for each extended resource of which a container requests more than none. The
// API server sees to it that requests and limits of such a resource are equal.
func eachExtended(pod *v1.Pod, f func(container string, name v1.ResourceName)) {
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for name, quantity := range containers[i].Resources.Requests {
				if resource.IsExtendedResource(sdk.ResourceName(name)) && !quantity.IsZero() {
					f(containers[i].Name, name)
				}
			}
		}
	}
}

// allocates reports whether the annotation of a pod that is not bound has what only the scheduler
// may write.
func allocates(written *sdk.PodInfo) bool {
	for _, containers := range []map[string]sdk.ContainerInfo{written.RunningContainers, written.InitContainers} {
		for _, container := range containers {
			if len(container.DevRequests)+len(container.AllocateFrom) > 0 {
				return true
			}
		}
	}
	return written.NodeName != ""
}

const (
	requestEntries = 1 << 11

	// Pods of one template have the same annotation, which is short: longer ones are not cached.
	annotationEntries  = 256
	maxAnnotationBytes = 4096
)

// read reads the annotation of a pod that is not bound, which may be absent.
func (c *Cache) read(annotation string) (*sdk.PodInfo, error) {
	if annotation == "" {
		return &sdk.PodInfo{}, nil
	}
	if known, ok := c.annotations.Get(annotation); ok {
		return known, nil
	}
	info, err := deviceinfo.DecodePod(annotation)
	if err == nil && len(annotation) <= maxAnnotationBytes {
		c.annotations.Add(annotation, info)
	}
	return info, err
}

// Containers returns the pod's containers, init containers first, with the kind that says when they
// run.
func Containers(pod *v1.Pod) []grouptree.Container {
	list := make([]grouptree.Container, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	for i := range pod.Spec.InitContainers {
		kind := grouptree.Init
		if deviceinfo.IsSidecar(&pod.Spec.InitContainers[i]) {
			kind = grouptree.Sidecar
		}
		list = append(list, grouptree.Container{Name: pod.Spec.InitContainers[i].Name, Kind: kind})
	}
	for i := range pod.Spec.Containers {
		list = append(list, grouptree.Container{Name: pod.Spec.Containers[i].Name, Kind: grouptree.Regular})
	}
	return list
}
