// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
)

// table has the verdicts on one request.
type table struct {
	era       uint64
	index     *index
	temporary bool // it is not kept

	mu     sync.Mutex
	slots  []slot              // by the nodes' positions in the index
	known  int                 // slots with a verdict
	latest *allocation.Verdict // the last one that was put; most nodes have an equal one, and share it
}

// slot is a verdict and the state that it is about. It is valid while the node is in that state.
type slot struct {
	state   *allocation.Node
	verdict *allocation.Verdict
}

// moveTo moves the verdicts to their nodes' positions in another index. It returns how many are on
// nodes that this index does not have.
func (t *table) moveTo(next *index) (dropped int) {
	slots, known := make([]slot, len(next.entries)), 0
	for i := range next.entries {
		if before, ok := t.index.positions[next.entries[i].NodeInfo]; ok && t.slots[before].verdict != nil {
			slots[i] = t.slots[before]
			known++
		}
	}
	dropped = t.known - known
	t.index, t.slots, t.known = next, slots, known
	return dropped
}

// cycle is a table in the scheduling cycle of one pod.
type cycle struct {
	*table
	index               *index
	states              *nodestate.Cache
	tolerations         []v1.Toleration
	fixed               bool // no node changes in the cycle
	infeasible, unknown int  // nodes, when the cycle began
}

// begin drops the verdicts that are not valid any more, and those that the step limit cut short:
// the search may get further the next time. It also drops those on nodes with devices that the pod
// may have and others may not: they are for other pods.
func (y *cycle) begin() {
	var dropped [reasons]int
	for i := range y.slots {
		s, e := &y.slots[i], &y.index.entries[i]
		switch {
		case s.verdict == nil:
			y.unknown++
			continue
		case s.state != e.Devices:
			dropped[e.change]++
		case s.verdict.LimitHit:
			dropped[stepLimit]++
		case e.Tainted && e.DiffersFor(y.tolerations):
			dropped[otherTolerations]++
		case !s.verdict.Fits:
			y.infeasible++
			continue
		default:
			continue
		}
		*s = slot{}
		y.unknown++
	}
	y.known = len(y.slots) - y.unknown
	metrics.VerdictCacheHits.Add(float64(y.known))
	for r, count := range dropped {
		countDropped(reason(r), count)
	}
}

func (y *cycle) Get(nodeInfo fwk.NodeInfo) (known *allocation.Verdict, unmodified bool) {
	i, ok := y.position(nodeInfo)
	if !ok {
		return nil, false
	}
	s := &y.slots[i]
	if !y.fixed { // another cycle may have begun since, too
		if e := &y.index.entries[i]; !e.Holds() {
			return nil, false
		} else if s.state != e.Devices || e.Tainted && e.DiffersFor(y.tolerations) {
			return nil, true
		}
	}
	return s.verdict, true
}

func (y *cycle) Put(nodeInfo fwk.NodeInfo, state *allocation.Node, verdict *allocation.Verdict) {
	y.mu.Lock()
	defer y.mu.Unlock()
	metrics.VerdictCacheMisses.Inc()
	i, ok := y.position(nodeInfo)
	if !ok {
		return
	}
	if e := &y.index.entries[i]; e.Devices != state {
		e.update(y.states)
	}
	if y.latest == nil || !verdict.Same(y.latest) {
		y.latest = verdict
	}
	if y.slots[i].verdict == nil && !y.temporary {
		y.known++
		metrics.VerdictCacheSize.Inc()
	}
	y.slots[i] = slot{state, y.latest}
}

func (y *cycle) position(nodeInfo fwk.NodeInfo) (position int, ok bool) {
	known, _ := nodeInfo.(*framework.NodeInfo)
	position, ok = y.index.positions[known]
	return position, ok
}

func (y *cycle) Infeasible() int { return y.infeasible }

func (y *cycle) Candidates() sets.Set[string] {
	candidates := make(sets.Set[string], len(y.slots)-y.infeasible)
	for i := range y.slots {
		if v := y.slots[i].verdict; v == nil || v.Fits {
			candidates.Insert(y.index.entries[i].NodeInfo.Node().Name)
		}
	}
	return candidates
}

func (y *cycle) Unverified(limit int) map[*framework.NodeInfo]struct{} {
	if y.unknown+y.infeasible > limit {
		return nil
	}
	unverified := make(map[*framework.NodeInfo]struct{}, y.unknown+y.infeasible)
	for i := range y.slots {
		if v := y.slots[i].verdict; v == nil || !v.Fits {
			unverified[y.index.entries[i].NodeInfo] = struct{}{}
		}
	}
	return unverified
}

// reason is why verdicts are dropped: a nodestate.Change or one of these.
type reason int

const (
	nodeRemoved      = reason(nodestate.NodeInfoChange) + 1 + iota // from the snapshot's list
	pluginsChanged                                                 // how they translate, or which of them answer
	stepLimit                                                      // cut the search short
	requestEvicted                                                 // by others that were used later
	otherTolerations                                               // of taints of the node's devices
	reasons                                                        // is how many there are
)

// String returns the value of the metric's label.
func (r reason) String() string {
	return [reasons]string{
		"inventory", "reservation", "node_info", "node_removed", "plugins", "step_limit", "request_evicted",
		"tolerations",
	}[r]
}

// countDropped counts verdicts that were dropped from the cache.
func countDropped(r reason, count int) {
	if count > 0 {
		metrics.VerdictCacheInvalidations.WithLabelValues(r.String()).Add(float64(count))
		metrics.VerdictCacheSize.Add(-float64(count))
	}
}
