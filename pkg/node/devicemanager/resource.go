// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// State is what a resource is at one moment. It is never changed once it is made.
type State struct {
	// Resource is the extended resource.
	Resource types.ResourceName
	// Info is what the node has of it: its devices under the names of package hosted, and their number as KubeCap and
	// KubeAlloc. It is nil before the first list, and while the kubelet serves the resource too.
	Info *types.NodeInfo
	// Serving says that the plugin is there and can be asked for what it lists.
	Serving bool
	// Reported says that the plugin has had its say since the host was started: it listed its devices, or it did not come.
	Reported bool
	// Err says what is wrong, if anything: the plugin is gone, its last list was refused, the kubelet serves the resource.
	Err error
}

// resource is what the host knows of an extended resource. Its host's mu guards all fields but registering.
type resource struct {
	name types.ResourceName
	// registering is held while a plugin registers, which may take dialLimit.
	registering sync.Mutex

	session *session    // of the plugin that serves it; nil while none does
	devices []entry     // as last listed, by the plugin of session or one before it
	listed  bool        // devices is a list that a plugin told, an empty one maybe
	serving bool        // they may be allocated: a new session leaves that as it is until it lists its own
	told    bool        // see State
	refused error       // why the last list was not taken
	rival   *rival      // how the kubelet is in the way, or nil
	lost    error       // why there is no session
	expiry  clock.Timer // runs while there is no session and devices are kept
	state   *State      // nil when it must be made anew
}

// snapshot returns the resource as it is.
func (r *resource) snapshot() State {
	if r.state != nil {
		return *r.state
	}
	_, unserved := r.served()
	s := State{Resource: r.name, Reported: r.told, Serving: unserved == nil}
	if r.listed || r.session != nil {
		s.Err = errors.Join(unserved, r.refused)
	}
	if r.listed && r.rival == nil {
		s.Info = infoOf(r.name, r.devices, r.serving)
	}
	r.state = &s
	return s
}

// served returns the session that can be asked for the resource's devices, or why there is none.
func (r *resource) served() (*session, error) {
	switch {
	case r.rival != nil:
		return nil, r.rival
	case r.session == nil:
		return nil, r.lost
	case !r.session.listed:
		return nil, fmt.Errorf("the device plugin of %s has registered and not listed its devices yet", r.name)
	default:
		return r.session, nil
	}
}

// find returns the device of that ID.
func (r *resource) find(id string) (entry, bool) {
	for _, d := range r.devices {
		if d.ID == id {
			return d, true
		}
	}
	return entry{}, false
}

func unknownError(resource types.ResourceName) error {
	return fmt.Errorf("no device plugin of %s has registered with kubecri", resource)
}

func lostError(resource types.ResourceName, since time.Time, cause error) error {
	return fmt.Errorf("the device plugin of %s is gone since %s (%w); its devices are not allocatable until it registers again",
		resource, since.UTC().Format(time.RFC3339), cause)
}
