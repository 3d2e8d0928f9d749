// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"sync"
	"sync/atomic"

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

	// latest is what was said last. Most nodes of a cluster that lack something look alike, and so share a reason.
	latest atomic.Pointer[lack]

	mu        sync.Mutex
	nearest   map[grouptree.Reason]*grouptree.Reason // by kind
	simulated *tally
}

func newTally(words devicescheduler.Words, outer *tally) *tally {
	return &tally{words: words, outer: outer, nearest: map[grouptree.Reason]*grouptree.Reason{}}
}

// status returns the status of a node that lacks what the reason says.
func (t *tally) status(code fwk.Code, reason *grouptree.Reason) *fwk.Status {
	said := t.latest.Load()
	if said == nil || said.reason != reason {
		said = &lack{t, reason, reason.Kind()}
		t.add(said)
		t.latest.Store(said)
	}
	return fwk.NewStatus(code).WithError(said)
}

func (t *tally) add(said *lack) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if best := t.nearest[said.kind]; best == nil || said.reason.Nearer(best) {
		t.nearest[said.kind] = said.reason
	}
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

// lack is the part in a tally of nodes that share a reason, as an error that has the group's text.
type lack struct {
	tally  *tally
	reason *grouptree.Reason
	kind   grouptree.Reason
}

// Error returns what all nodes of the kind say at this moment.
func (l *lack) Error() string { return l.tally.of(l.kind).Text(l.tally.words) }
