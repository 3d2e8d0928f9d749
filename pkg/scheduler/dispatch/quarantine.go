// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/plugincall"
)

// quarantine keeps everybody from a plugin that fails for plain requests. It is guarded by the
// plugin's mutex.
type quarantine struct {
	text  string // says why; "" while the plugin is in service
	pause time.Duration
	until time.Time
}

// admit returns why a call is not to be made.
func (c *contained) admit(ctx context.Context, of *call) error {
	if err := c.reconsider(ctx, of); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.backOff(of); found != nil {
		return c.refuse(InBackOff, found.text, found.until)
	}
	return nil
}

// backOff returns what keeps the plugin from a call, or nil. The mutex is held.
func (c *contained) backOff(of *call) *backOff {
	if len(c.backOffs) == 0 {
		return nil
	}
	now := c.clock.Now()
	for _, by := range c.suspects(of) {
		if found := c.backOffs.find(by, of.node, now); found != nil {
			return found
		}
	}
	return nil
}

// keptFrom reports whether the plugin is kept from a request on a node, and not called for it.
func (c *contained) keptFrom(node *Node, request *Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.backOffs) > 0 && c.backOff(&call{node: node.info.Name, state: node, request: request}) != nil
}

// reconsider probes the plugin, where it is time for that: what an earlier call is blamed on may be
// open, the time of a quarantine may have passed, or that of the node. It returns why the plugin is
// not called for anybody.
func (c *contained) reconsider(ctx context.Context, of *call) error {
	c.mu.Lock()
	now, quarantined := c.clock.Now(), c.quarantine
	node := c.backOffs[culprit{BlamedNode, of.node}]
	doubtful := of.state != nil && node != nil && !node.in(now)
	c.mu.Unlock()
	switch {
	case quarantined.text != "" && (now.Before(quarantined.until) || !c.diagnosing.TryLock()):
		return c.refuse(Quarantined, quarantined.text, quarantined.until)
	case quarantined.text != "":
	case doubtful || c.undecided.Load() != nil:
		c.diagnosing.Lock()
	default:
		return nil
	}
	defer c.diagnosing.Unlock()
	if c.caller.Blocked() != nil { // the call says so
		return nil
	}
	if open := c.undecided.Swap(nil); open != nil {
		c.decide(ctx, open)
	}
	if quarantined.text != "" {
		return c.endQuarantine(ctx, of)
	}
	if doubtful {
		c.endNode(ctx, of)
	}
	return nil
}

// endQuarantine ends a quarantine if the plugin answers a probe, or makes it longer.
func (c *contained) endQuarantine(ctx context.Context, of *call) error {
	c.mu.Lock()
	now := c.quarantine
	c.mu.Unlock()
	switch { // another call may have been faster
	case now.text == "":
		return nil
	case c.clock.Now().Before(now.until):
		return c.refuse(Quarantined, now.text, now.until)
	}
	nodes := c.others(of.node)
	if of.state != nil {
		nodes = slices.Insert(nodes, 0, of.state)
	}
	if len(nodes) == 0 { // the call is all there is to try
		return nil
	}
	for _, node := range nodes {
		if answers(c.probe(ctx, node)) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.quarantine = quarantine{}
			c.publish()
			klog.FromContext(ctx).Info("A device scheduler is in service again", "plugin", c.name)
			return nil
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.extend(c.quarantine.text)
	return c.refuse(Quarantined, c.quarantine.text, c.quarantine.until)
}

// extend begins a quarantine, or makes it longer. The mutex is held.
func (c *contained) extend(text string) {
	c.quarantine.text = text
	c.quarantine.pause = min(max(2*c.quarantine.pause, firstPause), lastPause)
	c.quarantine.until = c.clock.Now().Add(c.quarantine.pause)
	c.publish()
}

// endNode ends the back-off of a node if the plugin answers a probe for it, or makes it longer.
func (c *contained) endNode(ctx context.Context, of *call) {
	by := culprit{BlamedNode, of.node}
	c.mu.Lock()
	found := c.backOffs[by]
	c.mu.Unlock()
	if found == nil || found.in(c.clock.Now()) { // another call was faster
		return
	}
	probe := c.probe(ctx, of.state)
	c.mu.Lock()
	defer c.mu.Unlock()
	if answers(probe) {
		delete(c.backOffs, by)
		return
	}
	c.hold(probe, c.backOffs.add(by, of.node, found.text, c.clock.Now()))
}

// blame finds out what is to blame for a call that failed, keeps the plugin from that for a time,
// and returns why there is no answer.
func (c *contained) blame(ctx context.Context, of *call) error {
	c.diagnosing.Lock()
	defer c.diagnosing.Unlock()
	c.mu.Lock()
	c.publish()
	if c.quarantine.text != "" {
		defer c.mu.Unlock()
		return c.refuse(plugincall.OutcomeOf(of.failed), c.quarantine.text, c.quarantine.until)
	}
	if found := c.backOff(of); found != nil { // a call that was made at the same time has failed in the same way
		defer c.mu.Unlock()
		c.hold(of, found)
		return c.refuse(plugincall.OutcomeOf(of.failed), found.text, found.until)
	}
	c.mu.Unlock()
	return c.note(ctx, of, c.diagnose(ctx, of))
}

// decide is blame for a call that failed earlier, and was blamed on what is to blame if nothing
// else is.
func (c *contained) decide(ctx context.Context, of *call) {
	accused := c.accused(of)
	if by := c.diagnose(ctx, of); by != accused {
		c.mu.Lock()
		delete(c.backOffs, accused)
		c.mu.Unlock()
		_ = c.note(ctx, of, by) // its caller is gone
	}
}

// diagnose finds out by probes what is to blame for a call that failed: a plain request tells the
// request from the node, and another node tells the node, or the pod that holds its devices, from
// the plugin.
func (c *contained) diagnose(ctx context.Context, of *call) culprit {
	by, failed := c.accused(of), false
	if of.state != nil {
		switch probe := c.probe(ctx, of.state); {
		case answers(probe):
			return by
		case plugincall.OutcomeOf(probe.failed) == plugincall.NotReturned:
			c.undecided.Store(of)
			return by
		}
		by, failed = culprit{BlamedNode, of.node}, true
	}
	others := c.others(of.node)
	for _, other := range others {
		switch probe := c.probe(ctx, other); {
		case answers(probe):
			return by
		case plugincall.OutcomeOf(probe.failed) == plugincall.NotReturned:
			if of.state == nil {
				c.undecided.Store(of)
			}
			return by
		}
		failed = true
	}
	if failed && (len(others) > 0 || c.onlyOn(of.node)) {
		return culprit{blamed: BlamedPlugin}
	}
	return by
}

// others returns the nodes but this one for which the plugin answered last.
func (c *contained) others(node string) []*Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.answered[:]), func(n *Node) bool { return n == nil || n.info.Name == node })
}

// onlyOn reports, of a node that is the only one known by which a plugin that fails could be told
// from a node that makes it fail, whether it is the plugin: it answered for this node before, or
// fails for another too.
func (c *contained) onlyOn(node string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answered[0] != nil {
		return true
	}
	for of := range c.backOffs {
		if of.blamed == BlamedNode && of.id != node {
			return true
		}
	}
	return false
}

// note keeps the plugin from what a failed call is blamed on, and returns why there is no answer.
func (c *contained) note(ctx context.Context, of *call, by culprit) error {
	c.recorder.Blamed(c.name, by.blamed)
	klog.FromContext(ctx).Error(of.failed, "A device scheduler failed",
		"plugin", c.name, "method", of.method, "blamed", by.blamed, "node", klog.KRef("", of.node))
	text := of.explain(by.blamed)
	c.mu.Lock()
	defer c.mu.Unlock()
	until := c.clock.Now().Add(firstPause)
	switch {
	case by.blamed == BlamedPlugin:
		c.extend(text)
		until = c.quarantine.until
	case by.blamed == BlamedNothing:
	case of.method == "AddNode" && plugincall.OutcomeOf(of.failed) != plugincall.TimedOut:
		// The caller waits by itself before it adds a node again: see AddNode.
	default:
		found := c.backOffs.add(by, of.node, text, c.clock.Now())
		c.hold(of, found)
		until = found.until
	}
	c.publish()
	return c.refuse(plugincall.OutcomeOf(of.failed), text, until)
}

// hold makes a back-off last until the call has returned. The mutex is held.
func (c *contained) hold(of *call, found *backOff) {
	if plugincall.OutcomeOf(of.failed) == plugincall.TimedOut && !of.returned && of.hangs == nil {
		of.hangs = found
		found.overdue++
	}
}

// returned notes that a call has returned after its limit.
func (c *contained) returned(of *call, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of.returned = true
	if found := of.hangs; found != nil {
		found.overdue--
		if until := c.clock.Now().Add(overduePauses * took); until.After(found.until) {
			found.until = until
		}
	}
	c.publish()
}

// succeeded notes that the plugin has answered.
func (c *contained) succeeded(of *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of.state != nil {
		c.answeredFor(of.state)
	}
	if len(c.backOffs) == 0 {
		return
	}
	for _, by := range c.suspects(of) {
		if found := c.backOffs[by]; found != nil && slices.Contains(found.nodes, of.node) {
			delete(c.backOffs, by)
		}
	}
}

// answeredFor notes a node for which the plugin has answered a request. The mutex is held.
func (c *contained) answeredFor(node *Node) {
	if last := c.answered[0]; last != nil && last.info.Name != node.info.Name {
		c.answered[1] = last
	}
	c.answered[0] = node
}

// publish tells the recorder whether the plugin is called at all, and how many calls hang. The
// mutex is held.
func (c *contained) publish() {
	if unavailable := c.quarantine.text != "" || c.caller.Blocked() != nil; unavailable != c.unavailable.Load() {
		c.unavailable.Store(unavailable)
		c.recorder.Quarantined(c.name, unavailable)
	}
	if overdue := c.caller.Overdue(); overdue != c.overdue {
		c.overdue = overdue
		c.recorder.Overdue(c.name, overdue)
	}
}
