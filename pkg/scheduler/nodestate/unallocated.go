// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"hash/maphash"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/request"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// decision is in the annotation of every pod that the scheduler has bound to devices, as it writes
// it. The admission policies refuse it to users.
const decision = `"nodename":`

// Unallocated returns those of the pods that request devices and were bound to the node without
// any. The pods are those that are bound to the node.
//
// A pod requests devices that its annotation requests, and extended resources that the node's
// inventory lists: all others are the kubelet's. It was given some when its annotation has the
// scheduler's decision, valid or not, or when the node reports in KubeDevice/Holders what the pod
// holds. When that report cannot be read, no pod is returned.
func (c *Cache) Unallocated(ctx context.Context, source *v1.Node, pods []*v1.Pod) []*v1.Pod {
	plain := c.sync(ctx, source).plain
	lists := func(name sdk.ResourceName) bool {
		_, found := slices.BinarySearch(plain, name)
		return found
	}
	without := slices.DeleteFunc(slices.Clone(pods), func(pod *v1.Pod) bool {
		annotation := pod.Annotations[deviceinfo.Annotation]
		return strings.Contains(annotation, decision) ||
			!request.Counts(pod, lists) && !c.writesRequests(pod.UID, annotation)
	})
	if len(without) == 0 {
		return nil
	}
	reported, err := deviceinfo.HoldersOf(source)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(without, func(pod *v1.Pod) bool { return reported[pod.UID] != nil })
}

// writesRequests reports whether a pod's annotation requests devices, or cannot be read: its node
// then refuses the pod, too. It is read once.
func (c *Cache) writesRequests(uid types.UID, annotation string) bool {
	switch {
	case annotation == "":
		return false
	case len(annotation) > request.MaxRequestBytes:
		return true
	}
	key := annotationOf{uid, maphash.String(seed, annotation)}
	known, ok := c.requesting.Get(key)
	if !ok {
		known = requests(annotation)
		c.requesting.Add(key, known)
	}
	return known
}

func requests(annotation string) bool {
	written, err := deviceinfo.DecodePod(annotation)
	if err != nil || len(written.Requests) > 0 {
		return true
	}
	for _, container := range written.Containers() {
		if len(container.Requests) > 0 {
			return true
		}
	}
	return false
}
