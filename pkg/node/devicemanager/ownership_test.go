// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"os"
	"strings"
	"testing"
	"time"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/statetest"
)

// owned is a manager of one resource, without sockets, which notes the resource's ownership.
type owned struct {
	*testing.T
	*Manager
	clock   *clocktesting.FakeClock
	session *session
	seen    []ownership
}

func newOwned(t *testing.T) *owned {
	clock := clocktesting.NewFakeClock(time.Now())
	return &owned{
		T: t, Manager: New(Options{Clock: clock}), clock: clock, session: &session{resource: qat},
		seen: []ownership{other},
	}
}

// want holds that the resource is in that ownership.
func (o *owned) want(want ownership) {
	o.Helper()
	if got := o.Manager.lookup(qat).ownership; got != want {
		o.Fatalf("the resource is %s, want %s", got, want)
	}
	o.seen = append(o.seen, want)
}

// remembers has the kubelet remember the resource, with a device or without one.
func (o *owned) remembers(device string) {
	o.updateConflicts(o.Context(), map[types.ResourceName]KubeletHolding{qat: {Device: device}})
}

// forgets has the kubelet know nothing.
func (o *owned) forgets() { o.updateConflicts(o.Context(), nil) }

// serves has the plugin here list a device.
func (o *owned) serves() {
	o.mu.Lock()
	r := o.resource(qat)
	r.session, r.presence = o.session, arriving
	o.mu.Unlock()
	o.update(o.Context(), o.session, []*pluginapi.Device{dev("a")})
}

// leaves has the plugin leave.
func (o *owned) leaves() { o.endSession(o.Context(), o.session, os.ErrClosed) }

func adoptingResource(o *owned) []types.ResourceName {
	o.serves()
	o.remembers("")
	contested := o.Contest(nothing)
	o.want(adopting)
	return contested
}

func registeringResource(o *owned) *Takeover {
	takeover := o.TakeOver(o.Context(), adoptingResource(o))[0]
	o.want(registering)
	return takeover
}

func registeredResource(o *owned) *Takeover {
	takeover := registeringResource(o)
	takeover.Offer()
	o.want(registered)
	return takeover
}

func awayResource(o *owned) *Takeover {
	takeover := registeredResource(o)
	o.leaves()
	o.want(registered)
	o.clock.Step(registrationGrace)
	o.want(away)
	return takeover
}

// inheritedResource is one of the state file, with its devices or without.
func inheritedResource(o *owned, devices ...entry) {
	o.mu.Lock()
	r := o.resource(qat)
	r.devices, r.presence = devices, lost
	o.move(r, inherited)
	o.mu.Unlock()
	o.want(inherited)
}

// ownershipWalks are the transitions as the comment of ownership has them. Each brings the resource
// into the first one and out of it.
var ownershipWalks = map[string]func(o *owned){
	"Other its plugin is here, and the kubelet remembers it -> Adopting": func(o *owned) { adoptingResource(o) },
	"Other the state file says that it was taken over -> Inherited":      func(o *owned) { inheritedResource(o) },
	"Adopting its pods are known -> Registering":                         func(o *owned) { registeringResource(o) },
	"Registering the kubelet has the devices -> Registered":              func(o *owned) { registeredResource(o) },
	"Registered the plugin is gone for registrationGrace -> Away":        func(o *owned) { awayResource(o) },
	"Adopting its pods are not known -> Other": func(o *owned) {
		o.Leave(adoptingResource(o))
		o.want(other)
	},
	"Registering the plugin is gone for registrationGrace -> Away": func(o *owned) {
		registeringResource(o)
		o.leaves()
		o.clock.Step(registrationGrace)
		o.want(away)
	},
	"Registering the kubelet has forgotten it -> Other": func(o *owned) {
		registeringResource(o).Forget(o.Context())
		o.want(other)
	},
	"Registered the kubelet has forgotten it -> Other": func(o *owned) {
		registeredResource(o).Forget(o.Context())
		o.want(other)
	},
	"Registered another plugin gave a container a device -> Other": func(o *owned) {
		registeredResource(o)
		o.Yield(o.Context(), qat, "pod")
		o.want(other)
	},
	"Inherited the devices are remembered -> Registered": func(o *owned) {
		d, err := newEntry(kubeletdevice.Device{Resource: qat, ID: "a"})
		if err != nil {
			o.Fatal(err)
		}
		inheritedResource(o, d)
		o.Resume(nothing)
		o.want(registered)
	},
	"Inherited no devices are remembered -> Away": func(o *owned) {
		inheritedResource(o)
		o.Resume(nothing)
		o.want(away)
	},
	"Inherited the kubelet has it in the place of a plugin file -> Away": func(o *owned) {
		d, err := newEntry(kubeletdevice.Device{Resource: qat, ID: "a"})
		if err != nil {
			o.Fatal(err)
		}
		inheritedResource(o, d)
		if resumed := o.Resume(func(types.ResourceName) bool { return true }); len(resumed) > 0 {
			o.Errorf("%v are resumed", resumed)
		}
		o.want(away)
	},
	"Inherited the kubelet has forgotten it -> Other": func(o *owned) {
		inheritedResource(o)
		o.forgets()
		o.want(other)
	},
	"Away the plugin serves again -> Registering": func(o *owned) {
		awayResource(o)
		o.serves()
		o.want(away)
		o.Resume(nothing)
		o.want(registering)
	},
	"Away the kubelet has forgotten it -> Other": func(o *owned) {
		awayResource(o)
		o.forgets()
		o.want(other)
	},
	"Away the kubelet has a device of it -> Other": func(o *owned) {
		awayResource(o)
		o.serves()
		o.remembers("b")
		o.want(other)
	},
}

// TestEveryTransitionOfAnOwnershipIsWalked walks the transitions of the comment, and holds that
// there are no others in it, in the table above, and on the way.
func TestEveryTransitionOfAnOwnershipIsWalked(t *testing.T) {
	statetest.Walk(t, "ownership.go", ownershipWalks, func(t *testing.T, walk func(*owned)) []ownership {
		o := newOwned(t)
		walk(o)
		return o.seen
	})
}

func TestATakeoverEndsWhenTheKubeletIsNotToHaveTheResource(t *testing.T) {
	o := newOwned(t)
	takeover := registeredResource(o)
	select {
	case <-takeover.Ended():
		t.Fatal("it has ended while it is registered")
	default:
	}
	takeover.Forget(t.Context())
	<-takeover.Ended()
	takeover.Offer() // says nothing any more
	o.want(other)
}

// Two plugins serve a resource, one of them at the kubelet, which restarts: it has no devices for
// some seconds.
func TestAResourceOfAnotherPluginAtTheKubeletIsNotContested(t *testing.T) {
	o := newOwned(t)
	o.serves()
	o.remembers("b")
	o.remembers("")
	o.clock.Step(RivalInterval - time.Second)
	if contested := o.Contest(nothing); len(contested) > 0 {
		t.Errorf("%v is contested at once", contested)
	}
	o.clock.Step(time.Second)
	if contested := o.Contest(nothing); len(contested) != 1 {
		t.Errorf("after a while %v is contested", contested)
	}
	o.want(adopting)
}

// A plugin has registered with the kubelet after this program had taken its resource over.
func TestAResourceIsLeftToAPluginAtTheKubeletUntilThatIsGone(t *testing.T) {
	kubelet := &served{}
	o := newOwned(t)
	o.options.KubeletResources = kubelet
	takeover := registeredResource(o)
	kubelet.has = map[types.ResourceName]KubeletHolding{qat: {Device: "a"}}
	o.Yield(t.Context(), gpu, "pod")
	o.Yield(t.Context(), qat, "pod")
	<-takeover.Ended()
	states, _ := o.States()
	if err := states[0].ErrWithheld(); err == nil || !strings.Contains(err.Error(), "has its device a") {
		t.Errorf("the state says %v", err)
	}
	o.remembers("")
	if contested := o.Contest(nothing); len(contested) > 0 {
		t.Errorf("%v is taken over at once when the plugin has left", contested)
	}
	o.clock.Step(RivalInterval)
	if contested := o.Contest(nothing); len(contested) != 1 {
		t.Errorf("after a while %v is taken over", contested)
	}
}

// The kubelet remembers what a plugin that has left gave to a pod, as long as the pod exists.
func TestAPodLeavesAResourceToAPluginAtTheKubeletOnce(t *testing.T) {
	for name, test := range map[string]struct {
		pod  string
		want ownership
	}{"the same pod": {"pod", registered}, "another pod": {"other", other}} {
		t.Run(name, func(t *testing.T) {
			o := newOwned(t)
			registeredResource(o)
			o.Yield(t.Context(), qat, "pod")
			o.want(other)
			o.remembers("")
			o.clock.Step(RivalInterval)
			o.TakeOver(t.Context(), o.Contest(nothing))[0].Offer()
			o.want(registered)
			o.Yield(t.Context(), qat, test.pod)
			o.want(test.want)
		})
	}
}

// nothing is excluded.
func nothing(types.ResourceName) bool { return false }
