// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"maps"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// asked is what the pods that are not over ask for, all together.
type asked struct {
	counts  map[string]int64 // by extended resource; never changed
	known   bool             // the API server has listed all pods
	changed chan struct{}    // closed and replaced when anything above changes
}

// Counts returns how many of each extended resource the node's pods that are not over ask for, as the kubelet counts them when
// it admits a pod; whether that is known, which it is when the API server has listed all pods once; and a channel that is closed
// when that is no longer so. The map must not be changed.
func (r *Registry) Counts() (counts map[string]int64, known bool, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked.counts, r.asked.known, r.asked.changed
}

// count adds up what the pods ask for, and tells who waits if it is another than before. The caller holds mu.
func (r *Registry) count() {
	counts := map[string]int64{}
	for uid, pod := range r.pods {
		if _, gone := r.gone[uid]; gone || pod.Over {
			continue
		}
		for name, count := range pod.Counts {
			counts[name] += min(count, math.MaxInt64-counts[name])
		}
	}
	if r.synced == r.asked.known && maps.Equal(counts, r.asked.counts) {
		return
	}
	close(r.asked.changed)
	r.asked = asked{counts: counts, known: r.synced, changed: make(chan struct{})}
}

// countsOf returns how many of each extended resource the pod asks for: the most at any time of its life, by the formula that
// the kubelet and the scheduler have.
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
