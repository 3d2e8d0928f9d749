// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"slices"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
)

// admit returns why a call is not to be made, or nil. Where it is time for that, it has the plugin
// probed first.
func (p *Plugin) admit(ctx context.Context, call *Call) error {
	if p.State() == Serving {
		return nil
	}
	if err := p.reconsider(ctx, call); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if found := p.health.backOff(call, p.Clock.Now()); found != nil {
		return p.refuse(OutcomeBackOff, found.text, found.until)
	}
	return nil
}

// reconsider probes the plugin where it is time for that: what an earlier call is blamed on may be
// unverified, and the time of a quarantine may have passed, or that of the node. It returns why no
// call of the plugin is made.
func (p *Plugin) reconsider(ctx context.Context, call *Call) error {
	p.mu.Lock()
	now, q := p.Clock.Now(), p.health.quarantine
	due, unverified := p.health.isDue(call, now), p.health.unverified != nil
	p.mu.Unlock()
	switch {
	case q.text != "" && (now.Before(q.until) || !p.probes.TryLock()):
		return p.refuse(OutcomeQuarantined, q.text, q.until)
	case q.text != "":
	case due || unverified:
		p.probes.Lock()
	default:
		return nil
	}
	defer p.probes.Unlock()
	if p.caller.Blocked() != nil { // the call says so
		return nil
	}
	if open := p.takeUnverified(); open != nil {
		p.verify(ctx, open)
	}
	if q.text != "" {
		return p.endQuarantine(ctx, call)
	}
	if due {
		p.endNode(ctx, call)
	}
	return nil
}

func (p *Plugin) takeUnverified() *Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	open := p.health.unverified
	p.health.unverified = nil
	p.publish()
	return open
}

// endQuarantine ends a quarantine if the plugin answers a probe, or makes it longer. It returns why
// no call of the plugin is made. probes is held.
func (p *Plugin) endQuarantine(ctx context.Context, call *Call) error {
	nodes, err := p.beginProbing(call)
	if len(nodes) == 0 {
		return err
	}
	answered := slices.ContainsFunc(nodes, func(node Probe) bool { return answers(p.probe(ctx, node)) })
	if answered {
		klog.FromContext(ctx).Info("A device scheduler is in service again", logkey.Plugin, p.Name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if q := p.health.endProbing(answered, p.Clock.Now()); q.text != "" {
		err = p.refuse(OutcomeQuarantined, q.text, q.until)
	}
	p.publish()
	return err
}

// beginProbing returns the nodes to be probed at the end of a quarantine. There are none when
// another call has ended or extended it, which err says, and when the call itself is all there is
// to try.
func (p *Plugin) beginProbing(call *Call) (nodes []Probe, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.health.quarantine
	switch {
	case q.text == "":
		return nil, nil
	case p.Clock.Now().Before(q.until):
		return nil, p.refuse(OutcomeQuarantined, q.text, q.until)
	}
	nodes = p.health.otherNodes(call.Subject.Node)
	if own := call.Subject.Probe; own != nil {
		nodes = slices.Insert(nodes, 0, own)
	}
	p.health.quarantine.probing = len(nodes) > 0
	p.publish()
	return nodes, nil
}

// endNode ends the back-off of a node if the plugin answers a probe for it, or makes it longer.
// probes is held.
func (p *Plugin) endNode(ctx context.Context, call *Call) {
	blamed := culprit{BlamedNode, call.Subject.Node}
	p.mu.Lock()
	found := p.health.backOffs[blamed]
	p.mu.Unlock()
	if found == nil || found.lasts(p.Clock.Now()) { // another call was faster
		return
	}
	probed := p.probe(ctx, call.Subject.Probe)
	p.mu.Lock()
	defer p.mu.Unlock()
	if answers(probed) {
		delete(p.health.backOffs, blamed)
	} else {
		p.health.extendBackOff(probed, p.health.backOffs.add(blamed, call.Subject.Node, found.text, p.Clock.Now()))
	}
	p.publish()
}
