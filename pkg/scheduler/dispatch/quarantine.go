// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/request"
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
	if !c.unavailable.Load() && !c.keeps.Load() && c.undecided.Load() == nil {
		return nil
	}
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
func (c *contained) keptFrom(node *Node, request *request.Request) bool {
	if !c.keeps.Load() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.backOff(&call{node: node.info.Name, state: node, request: request}) != nil
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
			klog.FromContext(ctx).Info("A device scheduler is in service again", logkey.Plugin, c.name)
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
		c.publish()
		return
	}
	c.hold(probe, c.backOffs.add(by, of.node, found.text, c.clock.Now()))
}

// publish makes a change of what the mutex guards known to those who do not hold it, and to the
// recorder. The mutex is held.
func (c *contained) publish() {
	c.keeps.Store(len(c.backOffs) > 0)
	if unavailable := c.quarantine.text != "" || c.caller.Blocked() != nil; unavailable != c.unavailable.Load() {
		c.unavailable.Store(unavailable)
		c.recorder.Quarantined(c.name, unavailable)
	}
	if overdue := c.caller.Overdue(); overdue != c.overdue {
		c.overdue = overdue
		c.recorder.Overdue(c.name, overdue)
	}
}
