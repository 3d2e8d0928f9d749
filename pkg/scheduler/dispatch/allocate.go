// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Allocate chooses the pod's devices on the node. What it returns is the request with DevRequests, AllocateFrom and
// NodeName filled in. It is an error when the pod does not fit, which can only be news since Fit.
func (s *Set) Allocate(ctx context.Context, node *Node, request *Request) (*types.PodInfo, error) {
	began, pod := request.asked(), *request.Pod
	pod.NodeName = node.info.Name
	at := &asked{pod: &pod, spec: began.spec, digest: began.digest}
	if request.Empty() {
		return at.pod.Clone(), nil
	}
	for _, plugin := range s.plugins {
		if !plugin.kinds.concern(at.pod) {
			continue
		}
		var err error
		if at, err = plugin.allocation(ctx, node, request, at); err != nil {
			return nil, err
		}
	}
	if err := node.gap(at.pod); err != nil {
		return nil, err
	}
	rest, err := s.rest(request, at)
	if err != nil {
		return nil, err
	}
	if rest.unserved != "" {
		return nil, errors.New(rest.unserved)
	}
	allocated := at.pod.Clone()
	if rest.translation != nil {
		placed := s.place(ctx, node, rest.translation)
		if !placed.Fits {
			return nil, errors.New(placed.explain(node).Text(s.words))
		}
		placed.request.Apply(node.inventory.groups, placed.Placement, allocated)
	}
	if missing := unplaced(allocated); missing != "" {
		return nil, errors.New(missing)
	}
	return allocated, nil
}

// allocation answers from memory, where the plugin only translates, or has the plugin allocate.
func (c *contained) allocation(
	ctx context.Context, node *Node, request *Request, pod *asked,
) (*asked, error) {
	if c.translator == nil || c.pure || c.unavailable.Load() {
		return c.allocate(ctx, node, request, pod)
	}
	q := c.question(node, pod)
	if found := c.allocations.find(&q); found != nil {
		return found.of(pod).next, nil
	}
	next, err := c.allocate(ctx, node, request, pod)
	if err == nil {
		c.allocations.remember(&q, fitAnswer{fits: true, next: next})
	}
	return next, err
}

func (c *contained) allocate(ctx context.Context, node *Node, request *Request, pod *asked) (*asked, error) {
	nodeInfo, given := node.info.Clone(), pod.pod.Clone()
	of := &call{method: "PodAllocate", node: node.info.Name, state: node, request: request}
	return do(ctx, c, of, func() (*asked, error) {
		var err error
		if c.chooser != nil {
			_, err = c.chooser.Choose(nodeInfo, given, pod.spec)
		} else {
			err = c.PodAllocate(nodeInfo, given)
		}
		if err != nil {
			return nil, err
		}
		return newAsked(adopt(pod.pod, given), pod.spec), nil
	})
}
