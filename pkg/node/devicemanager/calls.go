// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// callKey identifies a call of Allocate: the same devices of one resource for the same container.
type callKey struct {
	resource  types.ResourceName
	container string
	ids       string
}

// allocateCall is a call of Allocate, which goes on when its caller waits no more.
type allocateCall struct {
	done chan struct{} // closed when the plugin has answered, or failed to

	// Of a call that is done:
	answer []byte
	err    error
	ended  time.Time
}

// Allocate returns what the resource's plugin answers to Allocate for a container with exactly the
// devices of these IDs. The container is any name of it that is its own. The answer is opaque; see
// Decode. The caller keeps it and uses it again when the container is created again, as the kubelet
// does, unless the machine has booted since.
//
// It waits up to awaitTimeout for a plugin that is restarting, and up to answerTimeout for the
// answer. A plugin may need longer than a caller has: the call goes on, and its outcome is kept for
// the next Allocate with the same arguments, which joins a call that still runs.
func (m *Manager) Allocate(
	ctx context.Context, resource types.ResourceName, ids []string, container string,
) (answer []byte, err error) {
	ids = slices.Sorted(slices.Values(ids))
	key := callKey{resource, container, strings.Join(ids, "\x00")}
	c := m.pending(key)
	if c == nil {
		s, err := m.await(ctx, resource, ids)
		if err != nil {
			return nil, err
		}
		c = m.start(ctx, s, key, ids)
	}
	timer := time.NewTimer(answerTimeout)
	defer timer.Stop()
	select {
	case <-c.done:
		m.forgetCall(key, c)
		return c.answer, c.err
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil, fmt.Errorf("the device plugin of %s has not answered yet to Allocate for %s; the call goes on, and "+
		"the container is tried again", resource, strings.Join(ids, ", "))
}

// pending returns the call that was begun before, or nil.
func (m *Manager) pending(key callKey) *allocateCall {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[key]
}

// start begins a call, unless another caller was faster, and returns it.
func (m *Manager) start(ctx context.Context, s *session, key callKey, ids []string) *allocateCall {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.options.Clock.Now()
	maps.DeleteFunc(m.calls, func(_ callKey, c *allocateCall) bool { // containers that did not come again
		return !c.ended.IsZero() && now.Sub(c.ended) > answerTTL
	})
	if c := m.calls[key]; c != nil {
		return c
	}
	c := &allocateCall{done: make(chan struct{})}
	m.calls[key] = c
	ctx = context.WithoutCancel(ctx) // it ends with the session, or after allocateTimeout
	s.calls.Go(func() {
		answer, err := m.allocate(ctx, s, ids)
		m.mu.Lock()
		c.answer, c.err, c.ended = answer, err, m.options.Clock.Now()
		m.mu.Unlock()
		close(c.done)
	})
	return c
}

// forgetCall forgets a call whose outcome was fetched.
func (m *Manager) forgetCall(key callKey, c *allocateCall) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls[key] == c {
		delete(m.calls, key)
	}
}

// allocate calls Allocate of the session's plugin.
func (m *Manager) allocate(ctx context.Context, s *session, ids []string) (answer []byte, err error) {
	var response *pluginapi.AllocateResponse
	err = m.call(ctx, s.resource, "Allocate", allocateTimeout, func(ctx context.Context) (err error) {
		request := &pluginapi.ContainerAllocateRequest{DevicesIds: ids}
		response, err = s.plugin.Allocate(ctx, &pluginapi.AllocateRequest{
			ContainerRequests: []*pluginapi.ContainerAllocateRequest{request},
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the device plugin of %s does not allocate %s: %w", s.resource, strings.Join(ids, ", "),
			err)
	}
	if len(response.GetContainerResponses()) == 0 {
		return nil, fmt.Errorf("the device plugin of %s gave no answer for the container that needs %s", s.resource,
			strings.Join(ids, ", "))
	}
	answer, err = proto.MarshalOptions{Deterministic: true}.Marshal(response.GetContainerResponses()[0])
	if err != nil {
		return nil, fmt.Errorf("answer of the device plugin of %s: %w", s.resource, err)
	}
	return answer, nil
}
