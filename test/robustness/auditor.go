// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// auditInterval is how often running processes are read from the kernel.
	auditInterval = 100 * time.Millisecond
	// startTime is how long the start of a container may take from its first moment on. The runtime
	// takes a container back whose start is cut off, as it is when kubecri is killed while it
	// carries the call: nobody knew that it ran. That takes some tenths of a second.
	startTime = 2 * time.Second
)

// auditor watches the containers of a cluster, without asking any program of it, and notes what
// must not be: a device that two of them have, and one that ends or gets another first process
// before its pod is deleted. It may be used from several goroutines.
type auditor struct {
	// running reads from the kernel what runs, by the container's id.
	running func() (map[string]container, error)
	now     func() time.Time

	// reading is held by whoever reads from the kernel, so that no answer is taken for a later one.
	looking sync.Mutex

	mu      sync.Mutex
	seen    map[string]container // that ran at the last reading, by id
	since   map[string]time.Time // when those were seen first
	leaving map[string]bool      // UIDs of pods that may end
	shared  []string             // devices of two containers, in words
	ended   []string             // containers that ended too early, in words
	cutOff  int                  // containers that ended while they were started
	broken  error                // why the kernel could not be read
}

func newAuditor(running func() (map[string]container, error)) *auditor {
	return &auditor{running: running, seen: map[string]container{}, since: map[string]time.Time{}, now: time.Now,
		leaving: map[string]bool{}}
}

// watch reads until ctx is done.
func (a *auditor) watch(ctx context.Context) {
	ticker := time.NewTicker(auditInterval)
	defer ticker.Stop()
	for {
		if err := a.inspect(); err != nil {
			a.mu.Lock()
			a.broken = err
			a.mu.Unlock()
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// inspect reads from the kernel once.
func (a *auditor) inspect() error {
	a.looking.Lock()
	defer a.looking.Unlock()
	now, err := a.running()
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, before := range a.seen {
		after, runs := now[id]
		switch lived := a.now().Sub(a.since[id]); {
		case runs && after.init == before.init, a.leaving[before.podUID]:
		case !runs && lived < startTime:
			a.cutOff++
		default:
			a.ended = append(a.ended, fmt.Sprintf("container %.12s of pod %s was process %d for %v and is not any more",
				id, before.podUID, before.init.pid, lived))
		}
		if !runs {
			delete(a.since, id)
		}
	}
	for id := range now {
		if _, known := a.since[id]; !known {
			a.since[id] = a.now()
		}
	}
	holders := map[string]container{}
	for _, id := range slices.Sorted(maps.Keys(now)) {
		for _, device := range now[id].devices {
			other, held := holders[device]
			// The reading takes some milliseconds: both must be there at its end.
			if held && other.init.runs() && now[id].init.runs() {
				a.shared = append(a.shared, fmt.Sprintf("device %s: containers %.12s and %.12s of pods %s and %s",
					device, other.id, id, other.podUID, now[id].podUID))
			}
			holders[device] = now[id]
		}
	}
	a.seen = now
	return nil
}

// mayEnd says that the pods are about to be deleted.
func (a *auditor) mayEnd(podUIDs []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, uid := range podUIDs {
		a.leaving[uid] = true
	}
}

// report adds to a result what was noted since the last call, and returns the containers that run,
// by id.
func (a *auditor) report(result *Result) (now map[string]container, err error) {
	if err := a.inspect(); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.Sort(a.shared)
	result.SharedDevices = append(result.SharedDevices, slices.Compact(a.shared)...)
	result.EndedContainers = append(result.EndedContainers, a.ended...)
	result.CutOffStarts += a.cutOff
	a.shared, a.ended, a.cutOff = nil, nil, 0
	return maps.Clone(a.seen), a.broken
}
