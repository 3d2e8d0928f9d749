// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"errors"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/statetest"
)

// backingOff has the plugin fail for a request, and answer a probe.
func backingOff(f *fixture) {
	f.panicsFor("bad")
	_ = f.fit("a", "bad")
	f.want(BackingOff)
}

// quarantined has the plugin answer for a node, and then fail for all requests.
func quarantined(f *fixture) {
	_ = f.fit("a", "good")
	f.panicsFor("good", "bad", plain)
	_ = f.fit("a", "good")
	f.want(Quarantined)
}

// blocked has a call for a request hang.
func blocked(f *fixture) {
	f.hangsFor("bad")
	_ = f.fit("a", "bad")
	f.want(Blocked)
}

// unverified has such a call return: while it hung, no probe could be made.
func unverified(f *fixture) {
	blocked(f)
	f.returns()
	f.want(Unverified)
}

// walks are the transitions as the package's comment has them. Each brings the plugin into the
// first state and out of it.
var walks = map[string]func(f *fixture){
	"Serving a call fails -> BackingOff":                               backingOff,
	"Serving a call fails, and plain requests fail too -> Quarantined": quarantined,
	"Serving a call hangs, and no other can be made -> Blocked": func(f *fixture) {
		blocked(f)
		f.returns()
	},
	"BackingOff the last subject is served again -> Serving": func(f *fixture) {
		backingOff(f)
		f.serves()
		f.clock.Step(firstBackOff)
		_ = f.fit("a", "bad")
		f.want(Serving)
	},
	"BackingOff a call fails, and plain requests fail too -> Quarantined": func(f *fixture) {
		backingOff(f)
		f.panicsFor("bad", "good", plain)
		_ = f.fit("a", "good")
		f.want(Quarantined)
	},
	"BackingOff a call hangs, and no other can be made -> Blocked": func(f *fixture) {
		backingOff(f)
		f.hangsFor("good")
		_ = f.fit("a", "good")
		f.want(Blocked)
		f.returns()
	},
	"Blocked the call returns, nothing is to blame -> Serving": func(f *fixture) {
		f.hangsFor("RemoveNode")
		_ = f.call("RemoveNode", "a")
		f.want(Blocked)
		f.returns()
		f.want(Serving)
	},
	"Blocked the call returns, its subject is to blame -> BackingOff": func(f *fixture) {
		f.hangsFor(MethodAddNode)
		_ = f.call(MethodAddNode, "a")
		f.want(Blocked)
		f.returns()
		f.want(BackingOff)
	},
	"Blocked the call returns, nothing could be probed -> Unverified": unverified,
	"Unverified the next call probes, nothing is suspected -> Serving": func(f *fixture) {
		_ = f.fit("b", "good")
		f.hangsFor("RemoveNode")
		_ = f.call("RemoveNode", "a")
		f.returns()
		f.want(Unverified)
		_ = f.fit("b", "good")
		f.want(Serving)
	},
	"Unverified the next call probes, a subject is suspected -> BackingOff": func(f *fixture) {
		unverified(f)
		if err := f.fit("a", "good"); err != nil {
			f.Errorf("another request: %v", err)
		}
		f.want(BackingOff)
	},
	"Quarantined its time has passed, and a call comes -> Probing": func(f *fixture) {
		quarantined(f)
		if err := f.fit("a", "good"); !errors.Is(err, ErrNoAnswer) || RetryAfter(err) != firstBackOff {
			f.Errorf("before the time has passed: %v, to be tried after %v", err, RetryAfter(err))
		}
		f.want(Quarantined)
		f.clock.Step(firstBackOff)
		_ = f.fit("a", "good")
	},
	"Probing a probe is answered -> Serving": func(f *fixture) {
		quarantined(f)
		f.serves()
		f.clock.Step(firstBackOff)
		if err := f.fit("a", "good"); err != nil {
			f.Errorf("in service again: %v", err)
		}
		f.want(Serving)
	},
	"Probing a probe is answered, a subject is to blame -> BackingOff": func(f *fixture) {
		backingOff(f)
		f.panicsFor("bad", "good", plain)
		_ = f.fit("a", "good")
		f.want(Quarantined)
		f.serves()
		f.clock.Step(firstBackOff)
		_ = f.fit("a", "good")
		f.want(BackingOff)
	},
	"Probing no probe is answered -> Quarantined": func(f *fixture) {
		quarantined(f)
		f.clock.Step(firstBackOff)
		if err := f.fit("a", "good"); RetryAfter(err) != 2*firstBackOff {
			f.Errorf("to be tried after %v, want twice the time", RetryAfter(err))
		}
		f.want(Quarantined)
	},
}

// TestEveryTransitionIsWalked walks the transitions of the package's comment, and holds that there
// are no others in it, in the table above, and on the way.
func TestEveryTransitionIsWalked(t *testing.T) {
	statetest.Walk(t, "state.go", walks, func(t *testing.T, walk func(*fixture)) []State {
		f := newFixture(t)
		walk(f)
		return f.seen()
	})
}

func TestAProbeThatHangsBlocksThePluginAgain(t *testing.T) {
	f := newFixture(t)
	unverified(f)
	f.hangsFor(plain)
	_ = f.fit("b", "good")
	f.want(Blocked)
	f.returns()
}

func TestAPluginThatHungAndThenFailsForPlainRequestsIsQuarantined(t *testing.T) {
	f := newFixture(t)
	_ = f.fit("a", "good")
	unverified(f)
	f.panicsFor("bad", "good", plain)
	_ = f.fit("a", "good")
	f.want(Quarantined)
}

func TestASubjectInBackOffIsNotCalledFor(t *testing.T) {
	f := newFixture(t)
	backingOff(f)
	f.serves()
	about := Subject{Node: "a", Request: Request{}, Probe: probe{f, "a"}}
	if f.KeptFrom(about) {
		t.Error("another request is kept from the plugin")
	}
	err := f.fit("a", "bad")
	if !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), "what this pod requests") {
		t.Errorf("the request that failed: %v", err)
	}
	if err := f.fit("a", "good"); err != nil {
		t.Errorf("another request: %v", err)
	}
}

func TestTheHolderThatThePluginFailedForIsToBlame(t *testing.T) {
	f := newFixture(t)
	call := func() error {
		call := &Call{Method: "TakePodResources", Subject: Subject{
			Node: "a", Holders: []Holder{{"1", "good"}, {"2", "evil"}},
		}}
		_, err := Do(t.Context(), f.Plugin, call, func() (struct{}, error) {
			call.SetHolder(1)
			panic("ouch")
		})
		return err
	}
	for range 2 {
		if err := call(); err == nil || !strings.Contains(err.Error(), `it fails for pod "evil" (UID 2)`) {
			t.Errorf("error %v", err)
		}
	}
	if len(f.blamed) != 1 || f.blamed[0] != BlamedHolder {
		t.Errorf("blamed %v, want the holder once", f.blamed)
	}
}
