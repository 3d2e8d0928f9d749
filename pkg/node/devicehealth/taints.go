// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicehealth

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// Taints knows the taints that administrators gave the node's devices. They are in the node's
// object, so that a restart forgets none. All methods are safe for concurrent use.
type Taints struct {
	events NodeEvents

	mu         sync.Mutex
	annotation string
	known      bool
	list       []deviceinfo.DeviceTaint             // never changed
	noticed    map[deviceinfo.DeviceTaint]time.Time // when those were seen that do not say since when they are
	changed    chan struct{}                        // closed and replaced with the list
}

// NewTaints returns taints that are not known yet. Changes are announced by events on the node.
func NewTaints(events NodeEvents) *Taints {
	return &Taints{events: events, changed: make(chan struct{})}
}

// Set takes the annotation KubeDevice/DeviceTaints of a state of the node. Of one that cannot be
// read, nothing follows here but an event: what the scheduler makes of it is its own.
func (t *Taints) Set(ctx context.Context, annotation string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known && annotation == t.annotation {
		return
	}
	first := !t.known
	t.known, t.annotation = true, annotation
	list, err := deviceinfo.DecodeDeviceTaints(annotation)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The taints of devices cannot be read")
		t.events.AnnounceTaints(corev1.EventTypeWarning, fmt.Sprintf("all devices of the node have the taint %s:%s: %v",
			deviceinfo.UnreadableKey, corev1.TaintEffectNoSchedule, err))
	}
	noticed, now := map[deviceinfo.DeviceTaint]time.Time{}, time.Now()
	for _, one := range list {
		if one.TimeAdded.IsZero() {
			noticed[one] = now
			if before, ok := t.noticed[one]; ok {
				noticed[one] = before
			}
		}
	}
	if !first && err == nil {
		t.announce("tainted", withoutListed(list, t.list))
		t.announce("no longer tainted", withoutListed(t.list, list))
	}
	t.list, t.noticed = list, noticed
	close(t.changed)
	t.changed = make(chan struct{})
}

// withoutListed returns those that the others do not have.
func withoutListed(list, others []deviceinfo.DeviceTaint) []deviceinfo.DeviceTaint {
	return slices.DeleteFunc(slices.Clone(list), func(t deviceinfo.DeviceTaint) bool {
		return slices.ContainsFunc(others, func(other deviceinfo.DeviceTaint) bool {
			return t.Device == other.Device && t.Taint() == other.Taint()
		})
	})
}

// announce puts one event on the node for these taints.
func (t *Taints) announce(state string, taints []deviceinfo.DeviceTaint) {
	if len(taints) == 0 {
		return
	}
	var names []string
	for _, one := range taints[:min(len(taints), maxNamed)] {
		taint := one.Taint()
		names = append(names, fmt.Sprintf("%s (%s)", one.Device, taint.ToString()))
	}
	text, verb := strings.Join(names, ", "), "is"
	if len(taints) > 1 {
		verb = "are"
	}
	if more := len(taints) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	t.events.AnnounceTaints(corev1.EventTypeNormal, fmt.Sprintf("%s %s %s", text, verb, state))
}

// List returns the taints, and a channel that is closed when they change. The list must not be
// changed.
func (t *Taints) List() (list []deviceinfo.DeviceTaint, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.list, t.changed
}

// since returns since when a device has a taint.
func (t *Taints) since(taint deviceinfo.DeviceTaint) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if noticed, ok := t.noticed[taint]; ok {
		return noticed
	}
	return taint.TimeAdded
}
