// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
)

const (
	// unknownTimeout is how long calls wait for a pod that the kubelet lists and the API server's
	// watch has not delivered. The kubelet's own watch is rarely ahead for longer.
	unknownTimeout = time.Second
	// unknownExpiry is how long a pod that stays unknown is not waited for again.
	unknownExpiry = 10 * time.Minute
)

// listing is what a call of the kubelet has returned.
type listing struct {
	pods []podName
	all  bool // the kubelet lists no others
}

// unknownPods are pods that the kubelet lists and this node does not know, by the time until which
// calls wait for them. It is safe for concurrent use.
type unknownPods struct {
	mu    sync.Mutex
	until map[podName]time.Time
}

// forget forgets the names whose pod is known or not listed any more, so that the next pod of the
// name is waited for again. unknown are the unknown ones of the listed pods.
func (u *unknownPods) forget(listed listing, unknown []podName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	known := make(map[podName]bool, len(listed.pods))
	for _, name := range listed.pods {
		known[name] = true
	}
	for _, name := range unknown {
		known[name] = false
	}
	now := time.Now()
	maps.DeleteFunc(u.until, func(name podName, until time.Time) bool {
		isKnown, isListed := known[name]
		return isKnown || listed.all && !isListed || now.Sub(until) > unknownExpiry
	})
}

// wait returns how long to wait for the unknown pods, at most; 0 if all were waited for before.
func (u *unknownPods) wait(unknown []podName) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if u.until == nil {
		u.until = map[podName]time.Time{}
	}
	last := now
	for _, name := range unknown {
		until, seen := u.until[name]
		if !seen {
			until = now.Add(unknownTimeout)
			u.until[name] = until
		}
		if until.After(last) {
			last = until
		}
	}
	return last.Sub(now)
}

// awaitKnown returns the pods of this node, by UID, when they include those that the kubelet lists,
// or these are waited for no longer. It does not wait before the API server has listed all pods.
func (s *Server) awaitKnown(ctx context.Context, listed listing) map[string]pods.Pod {
	current, complete, changed := s.options.Pods.Current()
	if !complete {
		return current
	}
	unknown := unknownAmong(listed.pods, current)
	s.unknown.forget(listed, unknown)
	wait := s.unknown.wait(unknown)
	if wait == 0 {
		return current
	}
	// One timeout: other calls may forget a name meanwhile.
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for len(unknown) > 0 && ctx.Err() == nil {
		select {
		case <-changed:
		case <-ctx.Done():
		}
		current, _, changed = s.options.Pods.Current()
		unknown = unknownAmong(listed.pods, current)
	}
	s.unknown.forget(listed, unknown)
	return current
}

// unknownAmong returns those of the listed pods that are not among the current ones. One that has
// ended is not the listed pod, but an earlier one of its name: the kubelet lists active pods.
func unknownAmong(listed []podName, current map[string]pods.Pod) []podName {
	known := make(map[podName]bool, len(current))
	for _, pod := range current {
		if !pod.Ended {
			known[podName{pod.Namespace, pod.Name}] = true
		}
	}
	var unknown []podName
	for _, name := range listed {
		if !known[name] {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// claimants returns the UIDs of the pods that may be granted devices when they start, or none if no
// listed pod is one of them. A pod that is being deleted does not start any more, and the next pod
// of its name may be listed already.
func claimants(current map[string]pods.Pod, granted []grants.Allocation, listed listing) []string {
	has := make(map[string]bool, len(granted))
	for i := range granted {
		has[granted[i].PodUID] = true
	}
	var uids []string
	concerned := listed.all
	for uid, pod := range current {
		if !has[uid] && !pod.Ended && !pod.Failure.Terminating && pod.Allocation != "" {
			uids = append(uids, uid)
			concerned = concerned || slices.Contains(listed.pods, podName{pod.Namespace, pod.Name})
		}
	}
	if !concerned {
		return nil
	}
	return uids
}
