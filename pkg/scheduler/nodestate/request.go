// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/request"
)

// Request returns what the pod asks for, or nil when it asks for no device on any node. A device
// pod is one that has requests in its annotation, or one that requests an extended resource which
// some node's inventory lists or a plugin claims; on which nodes it is one, each node decides. A
// pod that comes with an allocation and asks for nothing has an empty request: it is to be bound
// without that allocation. The error says why the annotation cannot be read.
//
// It is read once for each version of a pod, since queueing hints are requested for each pod that
// waits and each event. No node changes what is read.
func (c *Cache) Request(pod *v1.Pod) (*request.Request, error) {
	served, annotation := c.requestsServed(pod), pod.Annotations[deviceinfo.Annotation]
	if !served && annotation == "" {
		return nil, nil
	}
	version, of := podVersion{pod.UID, pod.ResourceVersion, c.waited(pod)}, c.requests.of(len(annotation))
	read, ok := of.Get(version)
	if !ok {
		read = c.readRequest(pod, annotation, version.waited)
		of.Add(version, read)
	}
	if read.err == nil && read.byCount && !served {
		return nil, nil
	}
	return read.Request, read.err
}

// RequestAtOnce is Request if that takes microseconds: known says that it is there, or short.
func (c *Cache) RequestAtOnce(pod *v1.Pod) (read *request.Request, known bool, err error) {
	annotation := pod.Annotations[deviceinfo.Annotation]
	if len(annotation) > maxUnread {
		_, known = c.requests.of(len(annotation)).Get(podVersion{pod.UID, pod.ResourceVersion, c.waited(pod)})
		if !known {
			_, known = c.annotations.of(len(annotation)).Get(annotation)
		}
		if !known {
			return nil, false, nil
		}
	}
	read, err = c.Request(pod)
	return read, true, err
}

// podVersion is all that a pod's request depends on.
type podVersion struct {
	uid     types.UID
	version string
	waited  bool
}

// podRequest is what a pod requests, or why that cannot be read.
type podRequest struct {
	*request.Request
	byCount bool // it is only for counts of extended resources, or for nothing, and not forged
	err     error
}

func (c *Cache) readRequest(pod *v1.Pod, annotation string, waited bool) podRequest {
	count := len(pod.Spec.InitContainers) + len(pod.Spec.Containers)
	if err := request.CheckSize(count, annotation); err != nil {
		return podRequest{err: err}
	}
	written, err := c.read(annotation)
	if err != nil {
		return podRequest{err: err}
	}
	if err := request.CheckRequests(written); err != nil {
		return podRequest{err: err}
	}
	info, err := deviceinfo.PodRequest(pod, written)
	if err != nil {
		return podRequest{err: err}
	}
	read := &request.Request{
		Pod: info, Containers: request.Containers(pod), Forged: request.Allocates(written), Waited: waited,
	}
	return podRequest{Request: read, byCount: read.ByCountOnly() && !read.Forged}
}

// MayHold reports whether the pod may hold devices, or be about to. It errs toward true.
func (c *Cache) MayHold(pod *v1.Pod) bool {
	return pod.Annotations[deviceinfo.Annotation] != "" || c.requestsServed(pod)
}

// requestsServed reports whether the pod requests an extended resource that is a device on some
// node.
func (c *Cache) requestsServed(pod *v1.Pod) bool { return request.Counts(pod, c.Serves) }

// RequestsFrom reports whether the pod requests an extended resource that is a device on this node;
// on one whose inventory cannot be read, one that is a device on any node.
func (c *Cache) RequestsFrom(ctx context.Context, source *v1.Node, pod *v1.Pod) bool {
	if devices := c.sync(ctx, source).devices; devices != nil {
		return request.Counts(pod, devices.Counts)
	}
	return c.requestsServed(pod)
}
