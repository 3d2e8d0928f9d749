// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kubedevice/kubedevice/pkg/plugincall"
)

const (
	// firstPause and lastPause bound the time for which a plugin is kept from what made it fail.
	// The time doubles with each failure after it.
	firstPause = time.Second
	lastPause  = time.Minute

	// AddPause is the time between two AddNode calls for a node that a plugin failed to take, which
	// the caller keeps.
	AddPause = 5 * time.Second

	// overduePauses is how many times as long as a call hung the plugin is kept from what it was
	// about: a request that hangs takes a fifth of the plugin's time at most.
	overduePauses = 4

	// maxBackOffs bounds what is remembered of one plugin's failures.
	maxBackOffs = 1 << 10

	// maxNodes is on how many nodes a request may fail before it is kept from the plugin on all
	// others too. More than one, or else one node could do that to the requests of all pods.
	maxNodes = 2
)

// culprit is what a failed call is blamed on.
type culprit struct {
	blamed Blamed
	// id is the request's key, and the pod's name for a plugin that may look at it; the node's
	// name; or the holder's UID.
	id string
}

// backOff keeps one culprit from a plugin for a time.
type backOff struct {
	nodes   []string // on which a request failed in this time
	pause   time.Duration
	until   time.Time
	overdue int    // calls that have not returned
	text    string // says what fails
}

// backOffs are a plugin's, guarded by its mutex.
type backOffs map[culprit]*backOff

// in reports whether the time has not passed.
func (b *backOff) in(now time.Time) bool { return b.overdue > 0 || now.Before(b.until) }

// find returns the back-off that keeps the plugin from a culprit on a node, or nil.
func (b backOffs) find(of culprit, node string, now time.Time) *backOff {
	found := b[of]
	if found == nil || !found.in(now) {
		return nil
	}
	if of.blamed == BlamedRequest && len(found.nodes) < maxNodes && !slices.Contains(found.nodes, node) {
		return nil
	}
	return found
}

// add notes that a culprit has made the plugin fail on a node.
func (b backOffs) add(of culprit, node, text string, now time.Time) *backOff {
	found := b[of]
	if found == nil {
		if len(b) >= maxBackOffs {
			b.evict()
		}
		found = &backOff{}
		b[of] = found
	}
	if !found.in(now) {
		found.nodes = nil
		found.pause = min(max(2*found.pause, firstPause), lastPause)
		found.until = now.Add(found.pause)
	}
	if !slices.Contains(found.nodes, node) {
		found.nodes = append(found.nodes, node)
	}
	found.text = text
	return found
}

// evict forgets the culprit whose time ends first.
func (b backOffs) evict() {
	var first culprit
	for of, found := range b {
		known := b[first]
		if known == nil || found.overdue == 0 && (known.overdue > 0 || found.until.Before(known.until)) {
			first = of
		}
	}
	delete(b, first)
}

// suspects returns what may be to blame for a call that fails.
func (c *contained) suspects(of *call) []culprit {
	switch {
	case of.state != nil:
		return []culprit{{BlamedNode, of.node}, c.requester(of)}
	case len(of.holders) > 0:
		all := make([]culprit, len(of.holders))
		for i, holder := range of.holders {
			all[i] = culprit{BlamedHolder, holder.UID}
		}
		return all
	case of.method == "AddNode": // which is what may bring another inventory
		return []culprit{{BlamedNode, of.method + " " + of.node}}
	default:
		return nil
	}
}

// accused returns what is to blame for a call that failed, if neither the node nor the plugin is.
func (c *contained) accused(of *call) culprit {
	suspects := c.suspects(of)
	switch {
	case len(suspects) == 0:
		return culprit{blamed: BlamedNothing}
	case len(of.holders) > 0:
		return suspects[of.failedAt]
	default:
		return suspects[len(suspects)-1]
	}
}

// requester returns the culprit that the request of a call is.
func (c *contained) requester(of *call) culprit {
	key := of.request.Key()
	if c.pure || c.translator != nil {
		return culprit{BlamedRequest, string(key[:])}
	}
	return culprit{BlamedRequest, string(key[:]) + of.request.Pod.Name}
}

// explain says what is to blame for a failed call, why it failed, and what to do.
func (of *call) explain(by Blamed) string {
	failed, advice := cause(of.failed), ""
	switch by {
	case BlamedRequest:
		failed, advice = "it fails for what this pod requests: "+failed, "change the request, or the plugin"
	case BlamedNode:
		failed, advice = "it fails for this node: "+failed, "check the node's devices, and the plugin"
	case BlamedHolder:
		holder := of.holders[of.failedAt]
		failed = fmt.Sprintf("it fails for pod %q (UID %s), which holds devices of the node: %s",
			holder.Pod.Name, holder.UID, failed)
		advice = "delete that pod, or change the plugin"
	case BlamedPlugin:
		failed, advice = "quarantined, because it fails for plain requests too: "+failed, "change the plugin"
	}
	return fmt.Sprintf("%s: %s; it is tried again after a while; %s (see the scheduler's log)",
		of.method, failed, advice)
}

// refusal is the error of a call that failed, and of those that are not made because of it.
type refusal struct {
	*plugincall.Failure
	pause time.Duration // for which no call is made
}

// Unwrap returns the failure.
func (r *refusal) Unwrap() error { return r.Failure }

// refuse returns why there is no answer. The text is the same on all nodes: events group nodes by
// it.
func (c *contained) refuse(outcome plugincall.Outcome, text string, until time.Time) error {
	text = fmt.Sprintf("device scheduler %q: %s", c.name, text)
	return &refusal{&plugincall.Failure{Outcome: outcome, Text: text}, until.Sub(c.clock.Now())}
}

// RetryAfter returns how long to wait before asking again, after ErrNoAnswer.
func RetryAfter(err error) time.Duration {
	var refused *refusal
	if !errors.As(err, &refused) {
		return firstPause
	}
	return max(refused.pause, firstPause)
}
