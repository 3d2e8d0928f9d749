// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"slices"
	"time"
)

const (
	// firstBackOff and lastBackOff bound the time for which a plugin is kept from what made it
	// fail. The time doubles with each failure after it.
	firstBackOff = time.Second
	lastBackOff  = time.Minute

	// AddNodeInterval is the time between two AddNode calls for a node that a plugin failed to
	// take, which the caller keeps.
	AddNodeInterval = 5 * time.Second

	// overdueFactor is how many times as long as a call hung the plugin is kept from what it was
	// about: a request that hangs takes a fifth of the plugin's time at most.
	overdueFactor = 4

	// maxBackOffs bounds what is remembered of one plugin's failures.
	maxBackOffs = 1 << 10

	// maxNodes is on how many nodes a request may fail before it is kept from the plugin on all
	// others too. More than one, or else one node could do that to the requests of all pods.
	maxNodes = 2
)

// backOff keeps one culprit from a plugin for a time.
type backOff struct {
	nodes   []string // on which a request failed in this time
	length  time.Duration
	until   time.Time
	overdue int    // calls that have not returned
	text    string // says what fails
}

// backOffs are a plugin's.
type backOffs map[culprit]*backOff

// lasts reports whether the time has not passed.
func (b *backOff) lasts(now time.Time) bool { return b.overdue > 0 || now.Before(b.until) }

// find returns the back-off that keeps the plugin from a culprit on a node, or nil.
func (b backOffs) find(blamed culprit, node string, now time.Time) *backOff {
	found := b[blamed]
	if found == nil || !found.lasts(now) {
		return nil
	}
	if blamed.blamed == BlamedRequest && len(found.nodes) < maxNodes && !slices.Contains(found.nodes, node) {
		return nil
	}
	return found
}

// add notes that a culprit has made the plugin fail on a node.
func (b backOffs) add(blamed culprit, node, text string, now time.Time) *backOff {
	found := b[blamed]
	if found == nil {
		if len(b) >= maxBackOffs {
			b.evict()
		}
		found = &backOff{}
		b[blamed] = found
	}
	if !found.lasts(now) {
		found.nodes = nil
		found.length = doubled(found.length)
		found.until = now.Add(found.length)
	}
	if !slices.Contains(found.nodes, node) {
		found.nodes = append(found.nodes, node)
	}
	found.text = text
	return found
}

// doubled returns the length of the back-off after one of this length.
func doubled(length time.Duration) time.Duration {
	return min(max(2*length, firstBackOff), lastBackOff)
}

// evict forgets the culprit whose time ends first.
func (b backOffs) evict() {
	var first culprit
	for blamed, found := range b {
		known := b[first]
		if known == nil || found.overdue == 0 && (known.overdue > 0 || found.until.Before(known.until)) {
			first = blamed
		}
	}
	delete(b, first)
}
