// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package verdict caches the verdicts of the device schedulers on the nodes of the scheduler's
// snapshot.
//
// From one pod to the next, hardly a node of a cluster changes, and most pods come from few
// templates: so most verdicts for a pod are those for a pod before it. New returns a cache that
// keeps them, per request and node, for as long as the node's state holds; PassThrough returns one
// that keeps nothing. A differential test in package frameworkplugin holds both equal.
package verdict

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
)

// Cache has the verdicts of one scheduler, all of its profiles together.
type Cache interface {
	// Begin starts the scheduling cycle of a pod with this request and these tolerations. nodes is
	// the snapshot's list, which the caller does not change; fixed says that the nodes do not
	// change either before the cycle ends. Cycles begin one after another, as the scheduler runs
	// them.
	Begin(nodes []fwk.NodeInfo, request *request.Request, tolerations []v1.Toleration, fixed bool) Cycle
}

// Cycle has the verdicts for one pod. Get and Put are safe for concurrent use, for different nodes.
type Cycle interface {
	// Get returns the verdict on a node, or nil if none is known. unmodified says that nodeInfo is
	// known to be the snapshot's, as it was when the cycle began: it is no copy that a simulation
	// has changed.
	Get(nodeInfo fwk.NodeInfo) (known *allocation.Verdict, unmodified bool)
	// Put keeps the verdict on a node that Get calls unmodified. state is what the verdict is
	// about.
	Put(nodeInfo fwk.NodeInfo, state *allocation.Node, verdict *allocation.Verdict)

	// Infeasible returns how many nodes were known not to fit when the cycle began.
	Infeasible() int
	// Candidates returns the names of all other nodes.
	Candidates() sets.Set[string]
	// Unverified returns the nodes that were not known to fit when the cycle began, or nil when
	// they are more than limit: all other nodes of the snapshot fit, and need no look-up. The
	// caller does not change it.
	Unverified(limit int) map[*framework.NodeInfo]struct{}
}

// PassThrough returns a cache that knows no verdict, so that every node is evaluated for every pod.
func PassThrough() Cache { return passThrough{} }

type passThrough struct{}

func (passThrough) Begin([]fwk.NodeInfo, *request.Request, []v1.Toleration, bool) Cycle {
	return passThrough{}
}
func (passThrough) Get(fwk.NodeInfo) (*allocation.Verdict, bool)            { return nil, false }
func (passThrough) Put(fwk.NodeInfo, *allocation.Node, *allocation.Verdict) {}
func (passThrough) Infeasible() int                                         { return 0 }
func (passThrough) Candidates() sets.Set[string]                            { return nil }
func (passThrough) Unverified(int) map[*framework.NodeInfo]struct{}         { return nil }
