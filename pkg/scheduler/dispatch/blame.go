// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/plugincall"
)

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

// onlyOn reports whether a failure on the only node that can be probed is the plugin's, and not the
// node's: the plugin answered for this node before, or fails for another too.
func (c *contained) onlyOn(node string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answered != [2]*Node{} {
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
		logkey.Plugin, c.name, logkey.Method, of.method, logkey.Blamed, by.blamed, logkey.Node, klog.KRef("", of.node))
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
		// The caller waits by itself before it adds a node again.
		until = c.clock.Now().Add(AddPause)
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
			c.publish()
		}
	}
}

// forget drops a node whose inventory changes from those that a probe may be for. A plugin has to
// answer only for what was last reported to it.
func (c *contained) forget(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, answered := range c.answered {
		if answered != nil && answered.info.Name == node {
			c.answered[i] = nil
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
