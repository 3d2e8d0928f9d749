// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Allocate chooses the pod's devices on the node. What it returns is the request with DevRequests, AllocateFrom and
// NodeName filled in. It is an error when the pod does not fit, which can only be news since Fit.
func (s *Set) Allocate(ctx context.Context, node *Node, request *Request) (*types.PodInfo, error) {
	pod := request.Pod.Clone()
	pod.NodeName = node.info.Name
	if request.Empty() {
		return pod, nil
	}
	for _, plugin := range s.plugins {
		if !plugin.kinds.concern(pod) {
			continue
		}
		var err error
		if pod, err = plugin.allocate(ctx, node, pod, request.Containers); err != nil {
			return nil, err
		}
	}
	if err := node.gap(pod); err != nil {
		return nil, err
	}
	if missing := request.unserved(pod); missing != "" {
		return nil, errors.New(missing)
	}
	if s.usesGroups(pod) {
		placed, err := s.place(ctx, node, request, pod)
		if err != nil {
			return nil, err
		}
		if !placed.Fits {
			return nil, errors.New(placed.explain(node).Text(s.words))
		}
		placed.request.Apply(node.inventory.groups, placed.Placement, pod)
	}
	if missing := unplaced(pod); missing != "" {
		return nil, errors.New(missing)
	}
	return pod, nil
}

func (c *contained) allocate(ctx context.Context, node *Node, pod *types.PodInfo, spec []grouptree.Container) (*types.PodInfo, error) {
	nodeInfo, given := node.info.Clone(), pod.Clone()
	return call(ctx, c, "PodAllocate", func() (*types.PodInfo, error) {
		var err error
		if c.chooser != nil {
			_, err = c.chooser.Choose(nodeInfo, given, spec)
		} else {
			err = c.PodAllocate(nodeInfo, given)
		}
		if err != nil {
			return nil, err
		}
		return adopt(pod, given), nil
	})
}
