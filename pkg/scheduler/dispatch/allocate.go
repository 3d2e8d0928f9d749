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
	for _, plugin := range s.plugins {
		given, nodeInfo := pod.Clone(), node.info.Clone()
		_, err := call(ctx, plugin, "PodAllocate", func() (struct{}, error) {
			return struct{}{}, plugin.PodAllocate(nodeInfo, given)
		})
		if err != nil {
			return nil, err
		}
		pod = given
	}
	if missing := request.unserved(pod); missing != "" {
		return nil, errors.New(missing)
	}
	if s.groups {
		groupRequest, placement, err := s.place(node, pod, request.Containers)
		if err != nil {
			return nil, err
		}
		if !placement.Fits {
			return nil, errors.New(grouptree.Explain(node.inventory.groups, node.used, groupRequest, placement).String())
		}
		groupRequest.Apply(node.inventory.groups, placement, pod)
	}
	return pod, nil
}

// place asks the group scheduler.
func (s *Set) place(node *Node, pod *types.PodInfo, containers []grouptree.Container) (*grouptree.Request, *grouptree.Placement, error) {
	request, err := grouptree.CompileRequest(pod, containers)
	if err != nil {
		return nil, nil, err
	}
	placer := s.placers.Get().(*grouptree.Placer)
	defer s.placers.Put(placer)
	return request, s.memo.Place(placer, node.inventory.groups, node.used, request), nil
}
