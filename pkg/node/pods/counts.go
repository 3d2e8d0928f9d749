// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"maps"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// counted is the total of the requests of pods that have not ended.
type counted struct {
	counts  map[string]int64 // by extended resource; immutable
	known   bool             // the API server has listed all pods
	changed chan struct{}    // closed and replaced when anything above changes
}

// Counts returns the total requests of the node's pods that have not ended, by extended resource,
// as the kubelet counts them when it admits a pod. known says that the API server has listed all
// pods once; changed is closed when the result changes. The caller must not change the map.
func (r *Registry) Counts() (counts map[string]int64, known bool, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counted.counts, r.counted.known, r.counted.changed
}

// count adds up the requests of the pods, and closes changed if the result differs. The caller
// holds mu.
func (r *Registry) count() {
	counts := map[string]int64{}
	for uid, pod := range r.pods {
		if _, gone := r.gone[uid]; gone || pod.Ended {
			continue
		}
		for name, count := range pod.Counts {
			counts[name] += min(count, math.MaxInt64-counts[name])
		}
	}
	if r.synced == r.counted.known && maps.Equal(counts, r.counted.counts) {
		return
	}
	close(r.counted.changed)
	r.counted = counted{counts: counts, known: r.synced, changed: make(chan struct{})}
}

// countsOf returns the pod's request by extended resource: the maximum at any time of its life, by
// the formula of the kubelet and the scheduler.
func countsOf(pod *corev1.Pod) map[string]int64 {
	var counts map[string]int64
	for name, quantity := range resource.PodRequests(pod, resource.PodResourcesOptions{}) {
		if !isExtended(name) || quantity.Sign() <= 0 {
			continue
		}
		if counts == nil {
			counts = map[string]int64{}
		}
		counts[string(name)] = quantity.Value()
	}
	return counts
}
