// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"sync"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
)

// tally makes nodes that lack the same say the same, although each has different numbers: upstream puts the nodes of an
// event into groups by the text of their reasons. The numbers are those of the node that is nearest to what the pod needs.
//
// A node's reason is put into words when it is read, not when Filter returns it: upstream reads the reasons after it has
// asked all nodes. So no node needs to wait for another, and a pod that is placed costs no words at all.
type tally struct {
	words devicescheduler.Words
	// outer is the tally of the cycle, for the tally of its simulations: those of preemption, and of the nodes that other
	// pods are nominated to.
	outer *tally

	mu        sync.Mutex
	nearest   map[grouptree.Reason]*grouptree.Reason // by kind
	simulated *tally
}

func newTally(words devicescheduler.Words, outer *tally) *tally {
	return &tally{words: words, outer: outer, nearest: map[grouptree.Reason]*grouptree.Reason{}}
}

// status returns the status of a node that lacks what the reason says.
func (t *tally) status(code fwk.Code, reason *grouptree.Reason) *fwk.Status {
	kind := reason.Kind()
	t.mu.Lock()
	defer t.mu.Unlock()
	if best := t.nearest[kind]; best == nil || reason.Nearer(best) {
		t.nearest[kind] = reason
	}
	return fwk.NewStatus(code).WithError(lack{t, kind})
}

// simulation returns the tally that all simulations of the cycle share. What they find is not said of the cycle's own
// nodes.
func (t *tally) simulation() *tally {
	if t.outer != nil {
		return t
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.simulated == nil {
		t.simulated = newTally(t.words, t)
	}
	return t.simulated
}

// of returns the reason of the node that is nearest to what is needed, or nil when there is none of that kind.
func (t *tally) of(kind grouptree.Reason) *grouptree.Reason {
	var best *grouptree.Reason
	for ; t != nil; t = t.outer {
		t.mu.Lock()
		if here := t.nearest[kind]; best == nil || here != nil && here.Nearer(best) {
			best = here
		}
		t.mu.Unlock()
	}
	return best
}

// lack is one node's part in a tally, as an error that has the group's text.
type lack struct {
	tally *tally
	kind  grouptree.Reason
}

// Error returns what all nodes of the kind say at this moment.
func (l lack) Error() string { return l.tally.of(l.kind).Text(l.tally.words) }
