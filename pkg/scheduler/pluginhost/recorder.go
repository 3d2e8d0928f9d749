// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"time"

	"github.com/kubedevice/kubedevice/pkg/plugincall"
)

// Outcome is how a call of a plugin ended. Its text is the value of a metric's label: it never
// changes. Calls that are made end as package plugincall says.
type Outcome = plugincall.Outcome

const (
	// OutcomeQuarantined says that the plugin was not called, because it is quarantined.
	OutcomeQuarantined Outcome = "quarantined"
	// OutcomeBackOff says that the plugin was not called, because of an earlier failure for the
	// same request, node or holder.
	OutcomeBackOff Outcome = "back_off"
	// OutcomeBlocked says that the plugin was not called, because an earlier call has not returned.
	OutcomeBlocked = plugincall.NotReturned
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

// Recorder counts what plugins do. It must be safe for concurrent use and return at once: calls
// wait for it.
type Recorder interface {
	// Called reports how one call of a plugin's method ended, and how long the plugin took, without
	// the time in the queue. TakePodResources is one call for all pods of a node, and Probe is a
	// call of PodFitsDevice for a plain request of the scheduler's own.
	Called(plugin, method string, outcome Outcome, took time.Duration)
	// Blamed reports what a failed call is blamed on.
	Blamed(plugin string, blamed Blamed)
	// Quarantined reports whether the plugin is called at all, see State.Calls. It is called for
	// every plugin at the start, and for each change.
	Quarantined(plugin string, quarantined bool)
	// Overdue reports how many calls have not returned within their limit and still run, likewise.
	Overdue(plugin string, calls int)
}
