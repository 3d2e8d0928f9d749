// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/lru"

	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
)

// maxRequests is for how many requests verdicts are kept. Each takes 16 bytes for each node.
const maxRequests = 32

// cache keeps the verdicts of the requests that were used last.
//
// For a pod it passes over the snapshot's list once, and looks up in a Go map each node that is in
// doubt or scored. All that a pod costs in the plugin then is 0.02 ms on 500 nodes and 0.07 ms on
// 5,000, with cold caches 0.09 and 0.23 ms (BenchmarkGrowth in package frameworkplugin), of 6 ms
// and 50 ms of CPU that it costs in all. A log of changes, a hash table by address, a finder that
// guesses the next node and a Bloom filter of the unverified ones made it 0.06 ms less at most,
// which is not worth their code.
type cache struct {
	schedulers *allocation.Set
	states     *nodestate.Cache

	mu     sync.Mutex
	index  *index
	writes uint64     // to the states, when the index was last brought up to date
	tables *lru.Cache // of *table, by request.Key
}

// New returns an empty cache of the verdicts that these schedulers give on nodes in these states.
func New(schedulers *allocation.Set, states *nodestate.Cache) Cache {
	return &cache{
		schedulers: schedulers,
		states:     states,
		index:      &index{},
		tables: lru.NewWithEvictionFunc(maxRequests, func(_ lru.Key, evicted any) {
			countDropped(requestEvicted, evicted.(*table).known)
		}),
	}
}

// Begin finds out which nodes have changed, and drops the verdicts on them.
func (c *cache) Begin(
	nodes []fwk.NodeInfo, request *request.Request, tolerations []v1.Toleration, fixed bool,
) Cycle {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.refresh(nodes) {
		return passThrough{}
	}
	t := c.table(request)
	y := &cycle{table: t, index: t.index, states: c.states, tolerations: tolerations, fixed: fixed}
	y.begin()
	return y
}

// table returns the verdicts on a request, which may be about states that nodes are no longer in.
func (c *cache) table(request *request.Request) *table {
	era, ok := c.schedulers.Era()
	if !ok { // no verdict holds for longer than this cycle
		return &table{index: c.index, slots: make([]slot, len(c.index.entries)), temporary: true}
	}
	cached, _ := c.tables.Get(request.Key())
	t, _ := cached.(*table)
	switch {
	case t == nil || t.era != era:
		if t != nil {
			countDropped(pluginsChanged, t.known)
		}
		t = &table{era: era, index: c.index, slots: make([]slot, len(c.index.entries))}
		c.tables.Add(request.Key(), t)
	case t.index != c.index:
		countDropped(nodeRemoved, t.moveTo(c.index))
	}
	return t
}

// index has the nodes of the snapshot's list. When the list changes, another index takes its place.
type index struct {
	entries   []entry
	positions map[*framework.NodeInfo]int
	named     map[string]int // the same by the nodes' names
}

// entry is a node of the snapshot, in its state when the last cycle began or evaluated it.
type entry struct {
	nodestate.Snapshot
	change  nodestate.Change // the last one
	written bool             // to the states, since the entry was up to date
}

// update brings the entry up to date.
func (e *entry) update(states *nodestate.Cache) {
	now := states.Snapshot(e.NodeInfo)
	if e.Devices != nil && now.Devices != e.Devices {
		e.change = now.ChangeSince(&e.Snapshot)
	}
	e.Snapshot, e.written = now, false
}

// refresh brings the index up to date with the snapshot. It reports false for a list of NodeInfos
// that are not upstream's own.
//
// It looks at each NodeInfo, but only at those states that were written since the last cycle: with
// evicted CPU caches, as in a scheduler at work, that saves a third of all that the plugin does for
// a pod on 5,000 nodes (BenchmarkGrowth with cold caches: 322 and 230 us). A state that is computed
// meanwhile is learned when a verdict on it is put.
func (c *cache) refresh(nodes []fwk.NodeInfo) bool {
	same := len(nodes) == len(c.index.entries)
	for i, nodeInfo := range nodes {
		known, ok := nodeInfo.(*framework.NodeInfo)
		if !ok {
			return false
		}
		same = same && c.index.entries[i].NodeInfo == known
	}
	if !same {
		before := c.index
		c.index = &index{
			entries:   make([]entry, len(nodes)),
			positions: make(map[*framework.NodeInfo]int, len(nodes)),
			named:     make(map[string]int, len(nodes)),
		}
		for i, nodeInfo := range nodes {
			known := nodeInfo.(*framework.NodeInfo)
			if at, ok := before.positions[known]; ok {
				c.index.entries[i] = before.entries[at]
			}
			c.index.entries[i].NodeInfo = known
			c.index.positions[known], c.index.named[known.Node().Name] = i, i
		}
	}
	writes, remembered := c.states.WrittenSince(c.writes, func(name string) {
		if i, ok := c.index.named[name]; ok {
			c.index.entries[i].written = true
		}
	})
	c.writes = writes
	for i := range c.index.entries {
		e := &c.index.entries[i]
		if e.written || !remembered || !e.HoldsInScheduler() {
			e.update(c.states)
		}
	}
	return true
}
