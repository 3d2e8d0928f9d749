// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package audit watches the containers of a cluster without asking any program that is tested: what
// runs, and which devices it has, is read from the kernel.
package audit

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
	// startTime is how long the start of a container may take from its beginning. The runtime
	// takes a container back whose start is cut off, as it is when kubecri is killed while it
	// forwards the call: the kubelet did not know that it ran. That takes some tenths of a second.
	startTime = 5 * time.Second
)

// Auditor notes what must not be: a device that two containers have, and a container that ends or
// gets another first process before its pod may end. It may be used from several goroutines.
type Auditor struct {
	// running reads from the kernel what runs, by the container's id.
	running func() (map[string]Container, error)
	now     func() time.Time

	// looking is held while the kernel is read, so that no answer is taken for a later one.
	looking sync.Mutex

	mu      sync.Mutex
	seen    map[string]Container // that ran at the last reading, by id
	since   map[string]time.Time // when those were seen first
	spans   map[string][]span    // when a container of a pod ran, by the pod's UID
	leaving map[string]bool      // UIDs of pods that may end
	found   Findings
	broken  error // why the kernel could not be read
}

// span is from when to when a container was seen to run; to is zero while it does.
type span struct{ from, to time.Time }

// Findings are what must not be, in words.
type Findings struct {
	// Shared are devices that two containers had at the same time.
	Shared []string
	// Ended are containers that ended too early, Bare those of them that had no device.
	Ended, Bare []string
	// CutOff is how many containers ended while they were started, which may be.
	CutOff int
}

// New returns an auditor that reads with running, as [Running] does, which containers run, by id.
func New(running func() (map[string]Container, error)) *Auditor {
	return &Auditor{running: running, seen: map[string]Container{}, since: map[string]time.Time{}, now: time.Now,
		spans: map[string][]span{}, leaving: map[string]bool{}}
}

// Watch reads ten times a second until ctx is done.
func (a *Auditor) Watch(ctx context.Context) {
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
func (a *Auditor) inspect() error {
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
		case runs && after.init == before.init, a.leaving[before.PodUID]:
		case !runs && lived < startTime:
			a.found.CutOff++
		default:
			ended := fmt.Sprintf("container %.12s of pod %s was process %d for %v and is not any more", id,
				before.PodUID, before.init.pid, lived)
			a.found.Ended = append(a.found.Ended, ended)
			if len(before.Devices) == 0 {
				a.found.Bare = append(a.found.Bare, ended)
			}
		}
		if !runs {
			delete(a.since, id)
			ran := a.spans[before.PodUID]
			ran[slices.IndexFunc(ran, func(s span) bool { return s.to.IsZero() })].to = a.now()
		}
	}
	for id, c := range now {
		if _, known := a.since[id]; !known {
			a.since[id] = a.now()
			a.spans[c.PodUID] = append(a.spans[c.PodUID], span{from: a.now()})
		}
	}
	holders := map[string]Container{}
	for _, id := range slices.Sorted(maps.Keys(now)) {
		for _, device := range now[id].Devices {
			other, held := holders[device]
			// The reading takes some milliseconds: both must be there at its end.
			if held && other.init.runs() && now[id].init.runs() {
				a.found.Shared = append(a.found.Shared,
					fmt.Sprintf("device %s: containers %.12s and %.12s of pods %s and %s", device, other.ID, id,
						other.PodUID, now[id].PodUID))
			}
			holders[device] = now[id]
		}
	}
	a.seen = now
	return nil
}

// MayEnd says that the pods are about to be deleted, or that their containers end by themselves.
func (a *Auditor) MayEnd(podUIDs ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, uid := range podUIDs {
		a.leaving[uid] = true
	}
}

// RanAt reports whether a container of the pod ran at that time, as far as the readings show,
// which are a tenth of a second apart.
func (a *Auditor) RanAt(podUID string, at time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.spans[podUID], func(s span) bool {
		return !s.from.After(at) && (s.to.IsZero() || s.to.After(at))
	})
}

// Report returns what was found since the last call, and the containers that run, by id.
func (a *Auditor) Report() (found Findings, now map[string]Container, err error) {
	if err := a.inspect(); err != nil {
		return found, nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	found, a.found = a.found, Findings{}
	slices.Sort(found.Shared)
	found.Shared = slices.Compact(found.Shared)
	return found, maps.Clone(a.seen), a.broken
}
