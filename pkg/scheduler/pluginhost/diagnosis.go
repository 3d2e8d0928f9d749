// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/plugincall"
)

// methodProbe stands for a probe in metrics.
const methodProbe = "Probe"

// diagnoseFailure finds out what is to blame for a call that failed, keeps the plugin from that for
// a time, and returns why there is no answer.
func (p *Plugin) diagnoseFailure(ctx context.Context, call *Call) error {
	p.probes.Lock()
	defer p.probes.Unlock()
	p.mu.Lock()
	p.publish()
	outcome, now := plugincall.OutcomeOf(call.failed), p.Clock.Now()
	if q := p.health.quarantine; q.text != "" {
		defer p.mu.Unlock()
		return p.refuse(outcome, q.text, q.until)
	}
	if found := p.health.backOff(call, now); found != nil { // a call at the same time has failed in the same way
		defer p.mu.Unlock()
		p.health.extendBackOff(call, found)
		return p.refuse(outcome, found.text, found.until)
	}
	p.mu.Unlock()
	return p.blame(ctx, call, p.diagnose(ctx, call))
}

// verify diagnoses a call that failed earlier, and was blamed on what is to blame if nothing else
// is. probes is held.
func (p *Plugin) verify(ctx context.Context, call *Call) {
	accused := call.accused()
	if blamed := p.diagnose(ctx, call); blamed != accused {
		_ = p.blame(ctx, call, blamed, accused) // its caller is gone
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.publish()
}

// diagnose finds out by probes what is to blame for a call that failed: a plain request separates
// the request from the node, and another node separates the node, or the pod that holds its
// devices, from the plugin. probes is held.
func (p *Plugin) diagnose(ctx context.Context, call *Call) culprit {
	node := call.Subject.Node
	blamed, failed := call.accused(), false
	if own := call.Subject.Probe; own != nil {
		switch probed := p.probe(ctx, own); {
		case answers(probed):
			return blamed
		case plugincall.OutcomeOf(probed.failed) == plugincall.NotReturned:
			p.setUnverified(call)
			return blamed
		}
		blamed, failed = culprit{BlamedNode, node}, true
	}
	p.mu.Lock()
	others := p.health.otherNodes(node)
	p.mu.Unlock()
	for _, other := range others {
		switch probed := p.probe(ctx, other); {
		case answers(probed):
			return blamed
		case plugincall.OutcomeOf(probed.failed) == plugincall.NotReturned:
			if call.Subject.Probe == nil {
				p.setUnverified(call)
			}
			return blamed
		}
		failed = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if failed && (len(others) > 0 || p.health.blamesOnlyNode(node)) {
		return culprit{blamed: BlamedPlugin}
	}
	return blamed
}

func (p *Plugin) setUnverified(call *Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.health.unverified = call
}

// blame keeps the plugin from what a failed call is blamed on, and no longer from those who are
// acquitted, and returns why there is no answer.
func (p *Plugin) blame(ctx context.Context, call *Call, blamed culprit, acquitted ...culprit) error {
	p.Recorder.Blamed(p.Name, blamed.blamed)
	klog.FromContext(ctx).Error(call.failed, "A device scheduler failed", logkey.Plugin, p.Name,
		logkey.Method, call.Method, logkey.Blamed, blamed.blamed, logkey.Node, klog.KRef("", call.Subject.Node))
	text := call.explain(blamed.blamed)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, other := range acquitted {
		delete(p.health.backOffs, other)
	}
	until := p.health.failed(call, blamed, text, p.Clock.Now())
	p.publish()
	return p.refuse(plugincall.OutcomeOf(call.failed), text, until)
}

// probe makes a probe. Any answer will do: see answers.
func (p *Plugin) probe(ctx context.Context, probe Probe) *Call {
	call := &Call{Method: methodProbe, Subject: Subject{Node: probe.NodeName()}}
	_, call.failed = plugincall.Do(ctx, p.caller, plugincall.Call{
		Method: methodProbe, Timeout: CallTimeout, Returned: func(took time.Duration) { p.returned(call, took) },
	}, func() (struct{}, error) { return struct{}{}, probe.Query() })
	p.mu.Lock()
	defer p.mu.Unlock()
	if answers(call) {
		p.health.answeredFor(probe)
	}
	p.publish()
	return call
}

// answers reports whether the plugin answered a probe.
func answers(probe *Call) bool {
	outcome := plugincall.OutcomeOf(probe.failed)
	return outcome == plugincall.Answered || outcome == plugincall.Errored
}
