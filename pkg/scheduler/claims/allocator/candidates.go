// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/kubedevice/kubedevice/pkg/scheduler/claims/pool"
	"github.com/kubedevice/kubedevice/pkg/scheduler/claims/selector"
)

// Allocated reports whether a device is allocated to a claim.
type Allocated func(structured.DeviceID) bool

// outcome is whether a device matches a selector.
type outcome uint8

const (
	mismatch outcome = iota
	match
	failed // the evaluation did
)

// matches returns the outcome of a selector for each device of a node, which is computed once.
func matches(ctx context.Context, node *pool.Node, expression *selector.Expression) ([]outcome, error) {
	if known := node.Memo.Get(expression); known != nil {
		return known.([]outcome), nil
	}
	all := make([]outcome, len(node.Devices))
	for i, device := range node.Devices {
		found, err := expression.Matches(ctx, device.Driver(), device.Spec)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, err
		case err != nil:
			all[i] = failed
		case found:
			all[i] = match
		}
	}
	node.Memo.Put(expression, all)
	return all, nil
}

// candidates are the devices that an alternative may get on a node.
type candidates struct {
	// devices are in order. For all devices of a node they are those that it must get.
	devices []*pool.Device
	// impossible says that the alternative is for all devices and cannot have one of them.
	impossible bool
	// outcomes are those of each selector for each device of the node.
	outcomes [][]outcome
}

// candidates returns the candidates of each alternative of each slot.
func (s *search) candidates(ctx context.Context) error {
	s.of = make([][]candidates, len(s.request.slots))
	for i := range s.request.slots {
		alternatives := s.request.slots[i].alternatives
		s.of[i] = make([]candidates, len(alternatives))
		for a := range alternatives {
			found, err := s.candidatesFor(ctx, &alternatives[a])
			if err != nil {
				return err
			}
			s.of[i][a] = found
		}
	}
	return nil
}

func (s *search) candidatesFor(ctx context.Context, a *alternative) (candidates, error) {
	var found candidates
	if a.all {
		for _, p := range s.node.Pools {
			if p.State != pool.Complete {
				return found, NotModelled(ReasonError, "all devices are requested, and pool %s is not complete", p.ID)
			}
		}
	}
	outcomes := make([][]outcome, len(a.selectors))
	for i, expression := range a.selectors {
		known, err := matches(ctx, s.node, expression)
		if err != nil {
			return found, err
		}
		outcomes[i] = known
	}
	found.outcomes = outcomes
devices:
	for i, device := range s.node.Devices {
		held := s.allocated[i]
		for _, known := range outcomes {
			switch known[i] {
			case mismatch:
				continue devices
			case failed:
				if held && !a.admin && !a.all {
					continue devices
				}
				return found, NotModelled(ReasonError, "a selector fails for device %s", device.ID)
			}
		}
		if device.Pool.NotModelled != "" {
			return found, NotModelled(ReasonPool, "pool %s has %s", device.Pool.ID, device.Pool.NotModelled)
		}
		usable := (a.admin || !held) && (!s.request.options.Features.DeviceTaints || tolerated(device.Spec, a))
		if a.all {
			found.impossible = found.impossible || !usable
			found.devices = append(found.devices, device)
		} else if usable {
			found.devices = append(found.devices, device)
		}
	}
	return found, nil
}

// tolerated reports whether an alternative tolerates all taints of a device that matter when it is
// allocated.
func tolerated(device *resourceapi.Device, a *alternative) bool {
taints:
	for _, taint := range device.Taints {
		if taint.Effect != resourceapi.DeviceTaintEffectNoExecute &&
			taint.Effect != resourceapi.DeviceTaintEffectNoSchedule {
			continue
		}
		for _, toleration := range a.tolerations {
			if resourceclaim.ToleratesTaint(toleration, taint) {
				continue taints
			}
		}
		return false
	}
	return true
}
