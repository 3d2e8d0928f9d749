// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// countLimit is how many whole devices a pod may hold.
//
// Quotas count limits by Kubernetes' formula, in which init containers use, one after the other,
// the devices of later containers. Requests of certain devices can make them others, and the pod
// holds each until it ends: then it holds more than is counted for it.
type countLimit struct {
	counted v1.ResourceList
	quotas  []*v1.ResourceQuota // that count the pod; nil where each count is a limit
}

// exceeded says which of the devices that a pod would hold, by their plain resource, are more than
// the limit; empty if none are.
func (l *countLimit) exceeded(held sdk.ResourceList) string {
	for _, plain := range slices.Sorted(maps.Keys(held)) {
		counted := l.counted[v1.ResourceName(plain)]
		if held[plain] <= counted.Value() {
			continue
		}
		why := "the scheduler runs with --device-quota=everywhere"
		if l.quotas != nil {
			quota := naming(l.quotas, plain)
			if quota == nil {
				continue
			}
			why = fmt.Sprintf("quota %q of namespace %q counts it", quota.Name, quota.Namespace)
		}
		return fmt.Sprintf("would give its containers %d different devices of %s until the pod ends, and Kubernetes "+
			"counts %d, as if init containers used the devices of later ones; %s: request the same devices for them",
			held[plain], plain, counted.Value(), why)
	}
	return ""
}

// quotaPrefixes begin the name of a resource in a quota. Kubernetes itself counts extended
// resources by the first one alone; HAMi's users write the second.
var quotaPrefixes = []string{v1.DefaultResourceRequestsPrefix, "limits."}

// naming returns the first quota that names the plain resource, or nil.
func naming(counting []*v1.ResourceQuota, plain sdk.ResourceName) *v1.ResourceQuota {
	return first(counting, plain, func(resource.Quantity) bool { return true })
}

// forbidding returns the first quota that allows nothing of the plain resource, or nil.
func forbidding(counting []*v1.ResourceQuota, plain sdk.ResourceName) *v1.ResourceQuota {
	return first(counting, plain, func(hard resource.Quantity) bool { return hard.IsZero() })
}

// first returns the first quota that names the plain resource with such a limit, or nil.
func first(
	counting []*v1.ResourceQuota, plain sdk.ResourceName, limits func(resource.Quantity) bool,
) *v1.ResourceQuota {
	for _, quota := range counting {
		for _, prefix := range quotaPrefixes {
			if hard, ok := quota.Spec.Hard[v1.ResourceName(prefix+string(plain))]; ok && limits(hard) {
				return quota
			}
		}
	}
	return nil
}
