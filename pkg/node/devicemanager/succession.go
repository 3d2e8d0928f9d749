// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/logkey"
)

// begin makes s the session of its resource, and follows it. The session before it stays, unless it
// is that of the same plugin: a plugin may send each of its lists on one stream alone.
func (m *Manager) begin(ctx context.Context, s *session, conflict *conflict) {
	m.mu.Lock()
	r := m.resource(s.resource)
	isSame := func(older *session) bool { return older.isSameSocket(s) }
	before := append(r.older, r.session)
	if r.session == nil {
		before = r.older
	}
	replaced := slices.DeleteFunc(slices.Clone(before), func(older *session) bool { return !isSame(older) })
	r.older = slices.DeleteFunc(before, isSame)
	if r.isAllocatable() {
		r.presence = succeeding
	} else {
		r.presence = arriving
	}
	r.session, r.unserved, r.refused, r.conflict, r.rivalSeen = s, nil, nil, conflict, time.Time{}
	if conflict != nil && conflict.Device != "" {
		r.rivalSeen = m.options.Clock.Now()
	}
	r.stopExpiry()
	m.touch(r)
	m.mu.Unlock()
	for _, older := range replaced {
		older.close()
	}
	logger := klog.LoggerWithValues(klog.FromContext(ctx), logkey.Resource, s.resource, logkey.Endpoint, s.socket)
	ctx = klog.NewContext(ctx, logger)
	m.running.Go(func() {
		defer s.finish()
		m.endSession(ctx, s, s.follow(ctx, func(list []*pluginapi.Device) { m.update(ctx, s, list) }))
	})
}

// update replaces the devices of the session's resource. The list of an older session is kept for
// when the newer ones leave; that of one which has been replaced counts for nothing.
func (m *Manager) update(ctx context.Context, s *session, list []*pluginapi.Device) {
	listed, err := readList(s.resource, list)
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.lookup(s.resource)
	switch {
	case err == nil && slices.Contains(r.older, s):
		s.last = &listed
		return
	case r.session != s:
		return
	case err != nil:
		r.refused = fmt.Errorf("the device plugin of %s sent a list that cannot be used, so the one before stays: %w",
			s.resource, err)
		r.reported = true
		klog.FromContext(ctx).Error(r.refused, "The list of a device plugin is refused")
		m.touch(r)
		return
	}
	if s.last == nil {
		select {
		case m.listed <- struct{}{}:
		default:
		}
	}
	s.last = &listed
	if r.presence == serving && r.refused == nil && equalLists(r.devices, listed.devices) &&
		sameText(r.remark, listed.remark) {
		return
	}
	klog.FromContext(ctx).V(2).Info("A device plugin lists its devices",
		logkey.Devices, len(listed.devices), logkey.Healthy, healthy(listed.devices))
	r.take(listed)
	m.touch(r)
}

// take makes a list that of the resource, which is served.
func (r *resource) take(listed deviceList) {
	r.presence, r.devices, r.remark, r.reported, r.refused = serving, listed.devices, listed.remark, true, nil
}

func sameText(a, b error) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Error() == b.Error())
}

// endSession records that the session's stream has ended. An older plugin that is still there
// serves again. A plugin that has moved to another kubecri is not lost: that one reports its
// devices, and this one must not contradict it while it drains.
func (m *Manager) endSession(ctx context.Context, s *session, cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.lookup(s.resource)
	r.older = slices.DeleteFunc(r.older, func(older *session) bool { return older == s })
	if r.session != s || ctx.Err() != nil {
		return
	}
	if m.isReplaced() {
		klog.FromContext(ctx).Info("A device plugin has moved to the process that serves the directory now")
		return
	}
	if last := len(r.older) - 1; last >= 0 {
		m.fallBack(ctx, r, r.older[last], cause)
		r.older = r.older[:last]
		return
	}
	r.presence, r.session, r.refused, r.remark, r.reported = lost, nil, nil, nil, true
	m.lose(r, fmt.Errorf("the device plugin of %s is gone since %s (%w); "+
		"its devices are not allocatable until it registers again",
		r.name, m.options.Clock.Now().UTC().Format(time.RFC3339), cause))
	if r.takeover != nil {
		m.expireTakeover(r)
	}
	klog.FromContext(ctx).Info("A device plugin is gone", logkey.Reason, cause, logkey.Kept, KeepCapacity)
}

// fallBack has an older plugin serve the resource again. The caller holds mu.
func (m *Manager) fallBack(ctx context.Context, r *resource, older *session, cause error) {
	klog.FromContext(ctx).Info("A device plugin is gone; the one before it serves again", logkey.Reason, cause)
	r.session, r.refused = older, nil
	if older.last != nil {
		r.take(*older.last)
	} else {
		r.presence = arriving
	}
	m.touch(r)
}

// lose records that no plugin serves r, which is forgotten after Keep. The caller holds mu.
func (m *Manager) lose(r *resource, why error) {
	r.presence, r.unserved = lost, why
	m.touch(r)
	var expiry clock.Timer
	expiry = m.options.Clock.AfterFunc(KeepCapacity, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if r.expiry == expiry {
			m.forget(r)
		}
	})
	r.expiry = expiry
}

// forget forgets the devices of r, which no plugin serves. The caller holds mu.
func (m *Manager) forget(r *resource) {
	m.endTakeover(r)
	r.expiry, r.devices, r.presence, r.unserved = nil, nil, absent, errUnregistered(r.name)
	m.touch(r)
	m.drop(r)
}
