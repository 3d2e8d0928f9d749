// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/kubedevice/kubedevice/pkg/node/pods"
)

const (
	// unknownTimeout is how long calls wait for a pod that the kubelet lists and the API server's
	// watch has not delivered. The kubelet's own watch is rarely ahead for longer.
	unknownTimeout = time.Second
	// unknownExpiry is how long a pod that stays unknown is not waited for again.
	unknownExpiry = 10 * time.Minute
)

// unknownPods are pods that the kubelet lists and this node does not know, by the time until which
// calls wait for them. It is safe for concurrent use.
type unknownPods struct {
	mu    sync.Mutex
	until map[podName]time.Time
}

// wait returns how long to wait for the unknown pods, at most; 0 if all were waited for before.
func (u *unknownPods) wait(unknown []podName) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(u.until, func(_ podName, until time.Time) bool { return now.Sub(until) > unknownExpiry })
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
func (s *Server) awaitKnown(ctx context.Context, listed []podName) map[string]pods.Pod {
	for {
		current, complete, changed := s.options.Pods.Current()
		unknown := unknownOf(listed, current)
		if !complete || len(unknown) == 0 {
			return current
		}
		wait := s.unknown.wait(unknown)
		if wait == 0 {
			return current
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return current
		}
	}
}

// unknownOf returns those of the listed pods that are not among the current ones.
func unknownOf(listed []podName, current map[string]pods.Pod) []podName {
	known := make(map[podName]bool, len(current))
	for _, pod := range current {
		known[podName{pod.Namespace, pod.Name}] = true
	}
	var unknown []podName
	for _, name := range listed {
		if !known[name] {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// claimants returns the UIDs of the pods that may be granted devices when they start.
func claimants(current map[string]pods.Pod) []string {
	var uids []string
	for uid, pod := range current {
		if !pod.Ended && pod.Allocation != "" {
			uids = append(uids, uid)
		}
	}
	return uids
}
