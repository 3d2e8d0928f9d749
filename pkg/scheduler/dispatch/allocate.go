// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"

	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Allocate chooses the pod's devices on the node. It returns the request with DevRequests,
// AllocateFrom and NodeName set. It returns an error when the pod does not fit, because something
// has changed since Fit.
func (s *Set) Allocate(ctx context.Context, node *Node, request *request.Request) (*types.PodInfo, error) {
	at := partOf(request, node.inventory)
	if at.Empty() {
		return at.named(request.Pod.Name, node.info.Name), nil
	}
	for _, plugin := range s.plugins {
		if !plugin.concern(node.inventory, at) {
			continue
		}
		var err error
		if at, err = plugin.cachedAllocate(ctx, node, request, at); err != nil {
			return nil, err
		}
	}
	if err := node.missingFor(at); err != nil {
		return nil, err
	}
	allocated, left := at.named(request.Pod.Name, node.info.Name), s.rest(at)
	switch {
	case left.err != nil:
		return nil, left.err
	case left.unserved != "":
		return nil, errors.New(left.unserved)
	case left.request != nil:
		alone := s.rationed(nil)
		placement := s.groupScheduler.place(ctx, node, left.request, alone)
		if !placement.Fits {
			return nil, errors.New(s.groupScheduler.explain(node, left.request, placement, alone).Text(s.words))
		}
		left.request.Apply(node.inventory.tree, placement, allocated)
	}
	if missing := unplaced(allocated); missing != "" {
		return nil, errors.New(missing)
	}
	return allocated, nil
}

func (h *handle) allocate(
	ctx context.Context, node *Node, request *request.Request, at *translation,
) (*translation, error) {
	nodeInfo, given := h.infoFor(node), at.named(request.Pod.Name, node.info.Name)
	call := &pluginhost.Call{Method: "PodAllocate", Subject: h.subject(node, request)}
	return pluginhost.Do(ctx, h.Plugin, call, func() (*translation, error) {
		if err := h.schedulerOf(node, at, 0).PodAllocate(nodeInfo, given); err != nil {
			return nil, err
		}
		return at.adopt(given, h.allocator != nil), nil
	})
}
