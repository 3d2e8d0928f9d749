// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"encoding/binary"
	"sync/atomic"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
)

// recallWays is how many answers share one bucket.
const recallWays = 4

// question is all that an answer of PodFitsDevice or PodAllocate depends on, for a plugin that says so of itself.
type question struct {
	revision  uint64 // of how the plugin translates; 0 for one that is pure
	pod, node digest
}

// recall is a plugin's memory of its answers to one method. It is bounded and safe for concurrent use; nobody waits for anybody. What is
// forgotten costs a call.
type recall struct {
	slots  []atomic.Pointer[recalled]
	victim atomic.Uint64
}

type recalled struct {
	question
	answer fitAnswer
}

// newRecall returns a recall of that many answers, a multiple of recallWays.
func newRecall(answers int) *recall { return &recall{slots: make([]atomic.Pointer[recalled], answers)} }

// bucket returns the slots in which the answer to a question may be.
func (m *recall) bucket(q *question) []atomic.Pointer[recalled] {
	hash := binary.LittleEndian.Uint64(q.pod[:]) ^ binary.BigEndian.Uint64(q.node[:]) ^ q.revision*0x9e3779b97f4a7c15
	at := hash % uint64(len(m.slots)/recallWays) * recallWays
	return m.slots[at : at+recallWays]
}

// find returns the answer that was given to the question before, or nil.
func (m *recall) find(q *question) *fitAnswer {
	bucket := m.bucket(q)
	for i := range bucket {
		if found := bucket[i].Load(); found != nil && found.question == *q {
			return &found.answer
		}
	}
	return nil
}

// remember keeps an answer in a free slot of its bucket, or in place of another.
func (m *recall) remember(q *question, answer fitAnswer) {
	bucket, kept := m.bucket(q), &recalled{*q, answer}
	for i := range bucket {
		if bucket[i].CompareAndSwap(nil, kept) {
			return
		}
	}
	bucket[m.victim.Add(1)%recallWays].Store(kept)
}

// learnHabits finds out whether the plugin's answers may be remembered.
func (c *contained) learnHabits(plugin devicescheduler.DeviceScheduler) {
	if translator, ok := plugin.(devicescheduler.Translator); ok && c.groups {
		c.translator = translator
		c.revision.Store(translator.Revision())
	}
	pure, ok := plugin.(devicescheduler.Pure)
	c.pure = ok && pure.Pure()
	if c.pure || c.translator != nil {
		c.recall = newRecall(recallEntries)
	}
	if c.translator != nil && !c.pure {
		c.allocations = newRecall(recallAllocations)
	}
}

// question returns what the plugin is asked, for one whose answers may be remembered.
func (c *contained) question(node *Node, pod *asked) question {
	if c.pure {
		return question{pod: pod.digest(), node: node.digest()}
	}
	return question{c.revision.Load(), pod.digest(), digest(node.inventory.groups.Shape())}
}

// ask answers from memory, where the plugin allows for it, or asks the plugin. One that is not called now is always
// asked: it would not allocate what it is remembered to fit, and only an answer brings it back.
func (c *contained) ask(ctx context.Context, node *Node, request *Request, pod *asked) (fitAnswer, error) {
	if c.recall == nil || c.unavailable.Load() || c.keptFrom(node, request) {
		return c.fit(ctx, node, request, pod)
	}
	q := c.question(node, pod)
	if found := c.recall.find(&q); found != nil {
		return found.of(pod), nil
	}
	answer, err := c.fit(ctx, node, request, pod)
	if err == nil {
		c.recall.remember(&q, answer)
	}
	return answer, err
}

// revise notes how the plugin translates from now on, after a call that told it of a node. It is part of that call.
func (c *contained) revise(changed func()) {
	if c.translator == nil {
		return
	}
	for now := c.translator.Revision(); ; {
		before := c.revision.Load()
		if now <= before { // a later call was faster
			return
		}
		if c.revision.CompareAndSwap(before, now) {
			changed()
			return
		}
	}
}
