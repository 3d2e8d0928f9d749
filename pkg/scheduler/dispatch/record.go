// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"time"

	"github.com/kubedevice/kubedevice/pkg/plugincall"
)

// Outcome is how a call into a plugin ended. Its text is the value of a metric's label: it never
// changes. "The pod does not fit" is an answer.
type Outcome = plugincall.Outcome

const (
	// Quarantined says that the plugin was not called, because it is quarantined.
	Quarantined Outcome = "set_aside"
	// InBackOff says that the plugin was not called, because of an earlier failure for the same
	// request, node or holder.
	InBackOff Outcome = "back_off"
	// NotReturned says that the plugin was not called, because an earlier call has not returned.
	NotReturned = plugincall.NotReturned
)

// Blamed is what a failed call is blamed on. Its text is the value of a metric's label: it never
// changes.
type Blamed string

const (
	// BlamedRequest is what one pod requests.
	BlamedRequest Blamed = "request"
	// BlamedNode is a node's inventory, or its state.
	BlamedNode Blamed = "node"
	// BlamedHolder is a pod that holds devices of a node.
	BlamedHolder Blamed = "holder"
	// BlamedPlugin is the plugin, which fails for plain requests too.
	BlamedPlugin Blamed = "plugin"
	// BlamedNothing is for a single call, such as RemoveNode, from which nothing follows.
	BlamedNothing Blamed = "nothing"
)

// Recorder counts what the device schedulers do. It must be safe for concurrent use
// and return at once: calls wait for it.
type Recorder interface {
	// Called reports how one call of a plugin's method ended, and how long the plugin took, without
	// the time in the queue. TakePodResources is one call for all pods of a node, and Probe is a
	// call of PodFitsDevice for a plain request of the scheduler's own.
	Called(plugin, method string, outcome Outcome, took time.Duration)
	// Blamed reports what a failed call is blamed on.
	Blamed(plugin string, on Blamed)
	// Quarantined reports whether the plugin is called at all: it is quarantined, or a call has not
	// returned. It is called for every plugin at the start, and for each change.
	Quarantined(plugin string, quarantined bool)
	// Overdue reports how many calls have not returned within their limit and still run, likewise.
	Overdue(plugin string, calls int)
	// StepLimitHit reports an answer of the group scheduler that a limit cut short, also a cached
	// one.
	StepLimitHit()
	// NotSearched reports that a node was not searched for want of a budget.
	NotSearched()
}

// unrecorded is the recorder of a set that has none.
type unrecorded struct{}

func (unrecorded) Called(string, string, Outcome, time.Duration) {}
func (unrecorded) Blamed(string, Blamed)                         {}
func (unrecorded) Quarantined(string, bool)                      {}
func (unrecorded) Overdue(string, int)                           {}
func (unrecorded) StepLimitHit()                                 {}
func (unrecorded) NotSearched()                                  {}
