// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// State is a resource at one moment. It is never changed.
type State struct {
	// Resource is the extended resource.
	Resource types.ResourceName
	// State says the rest. Its Info has the devices under the names of package kubeletdevice, and
	// their number as KubeCap and KubeAlloc; it is nil before the first list, and while the kubelet
	// serves the resource. Reported says that the plugin has listed its devices since the start, or
	// did not come in time.
	plugins.State
}

// resource is an extended resource. The manager's mu guards all fields but registering.
type resource struct {
	name types.ResourceName
	// registering is held while a plugin registers, which may take optionsTimeout. admitting counts
	// those that hold it or wait for it: until they are done, the manager keeps the resource.
	registering sync.Mutex
	admitting   int

	presence presence
	session  *session    // of the newest plugin that lives; nil if absent or lost
	older    []*session  // of plugins that live still, the newest last
	devices  []entry     // of the last valid list; nil before the first
	remark   error       // what is odd in that list, or nil
	reported bool        // see State
	refused  error       // why the last list was refused
	conflict *conflict   // with the kubelet, or nil
	unserved error       // why there is no session
	expiry   clock.Timer // runs while there is no session and devices are kept

	ownership ownership
	takeover  *Takeover   // nil unless registering or registered
	grace     clock.Timer // runs while there is a takeover and no session, see registrationGrace
	rivalSeen time.Time   // when the kubelet last had devices of another plugin, during the session

	yieldedFor map[string]bool // pods, by UID, because of which it was left to a plugin at the kubelet

	withheld map[string]string // by ID: not for pods, and the reason
	state    *State            // nil after a change
}

// snapshot returns the state of the resource.
func (r *resource) snapshot() State {
	if r.state == nil {
		_, unserved := r.served()
		r.state = &State{r.name, plugins.State{Reported: r.reported, Serving: unserved == nil, Remark: r.remark}}
		if r.isKubelets() {
			r.state.Withheld, unserved = map[types.ResourceName]error{r.name: unserved}, nil
		}
		if r.presence != absent {
			r.state.Err = errors.Join(unserved, r.refused, r.errWithheld())
		}
		if r.isListed() && r.conflict == nil {
			r.state.Info = infoOf(r.name, r.available(), r.isAllocatable() && r.ownership.isOffered())
			r.state.Health = r.healthOfWithheld()
		}
	}
	return *r.state
}

// isListed reports whether there has been a list of the devices, which may be empty.
func (r *resource) isListed() bool { return r.devices != nil }

// isAllocatable reports whether the devices may be allocated, as far as plugins matter.
func (r *resource) isAllocatable() bool { return r.presence == serving || r.presence == succeeding }

// isKubelets reports whether the kubelet has the resource, too, which a plugin serves here.
func (r *resource) isKubelets() bool { return r.presence == serving && r.conflict != nil }

// served returns the session that serves the resource's devices, or why there is none.
func (r *resource) served() (*session, error) {
	switch {
	case r.conflict != nil:
		return nil, r.conflict
	case r.session == nil:
		return nil, r.unserved
	case r.presence != serving:
		return nil, fmt.Errorf("the device plugin of %s has registered and not listed its devices yet", r.name)
	case !r.ownership.isOffered():
		return nil, fmt.Errorf("%s is being registered with the kubelet, which counts it still; it is offered then",
			r.name)
	default:
		return r.session, nil
	}
}

// servedWith returns the session that serves the resource and lists the devices as healthy, or why
// there is none.
func (r *resource) servedWith(ids []string) (*session, error) {
	s, err := r.served()
	if err != nil {
		return nil, err
	}
	health := make(map[string]bool, len(r.devices))
	for _, d := range r.devices {
		health[d.ID] = d.healthy
	}
	for _, id := range ids {
		if healthy, listed := health[id]; !listed {
			return nil, fmt.Errorf("device %s of %s is not among those that its plugin lists", id, r.name)
		} else if !healthy {
			return nil, fmt.Errorf("device %s of %s is unhealthy, its plugin says", id, r.name)
		}
	}
	return s, nil
}

// stopExpiry keeps the devices, and the takeover.
func (r *resource) stopExpiry() {
	if r.expiry != nil {
		r.expiry.Stop()
		r.expiry = nil
	}
	if r.grace != nil {
		r.grace.Stop()
		r.grace = nil
	}
}

func errUnregistered(resource types.ResourceName) error {
	return fmt.Errorf("no device plugin of %s has registered with kubecri", resource)
}

// available returns the devices with those as unhealthy that are withheld.
func (r *resource) available() []entry {
	if len(r.withheld) == 0 {
		return r.devices
	}
	devices := slices.Clone(r.devices)
	for i := range devices {
		if _, is := r.withheld[devices[i].ID]; is {
			devices[i].healthy = false
		}
	}
	return devices
}

// healthOfWithheld returns the health of the devices that are withheld, by device as in
// plugins.State.
func (r *resource) healthOfWithheld() map[string]device.Health {
	var health map[string]device.Health
	for _, d := range r.devices {
		reason, is := r.withheld[d.ID]
		if !is {
			continue
		}
		if health == nil {
			health = map[string]device.Health{}
		}
		id := path.Dir(string(d.name))
		health[id] = device.Health{Device: id, Reason: plugins.ReasonWithheld, Message: reason}
	}
	return health
}

// errWithheld says which devices no pod is given, or is nil.
func (r *resource) errWithheld() error {
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(r.withheld)) {
		errs = append(errs, fmt.Errorf("device %s of %s is allocated to no pod: %s", id, r.name, r.withheld[id]))
	}
	return errors.Join(errs...)
}
