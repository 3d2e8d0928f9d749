// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"sync/atomic"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
)

// managed is a handle by which upstream's plugin reads slices and allocated devices through a
// manager of ours.
type managed struct {
	fwk.Handle
	manager *manager
}

// SharedDRAManager returns the manager.
func (m managed) SharedDRAManager() fwk.SharedDRAManager { return m.manager }

// manager is the scheduler's manager, for which devices that are not for claims are allocated, and
// with other slices and allocated devices while there is a view. Upstream's plugin reads these in
// PreFilter alone, which the scheduling cycle calls: bindings that go on meanwhile see no
// difference.
type manager struct {
	fwk.SharedDRAManager
	claims *claimsForAll
	view   atomic.Pointer[view]
}

func newManager(of fwk.SharedDRAManager, ledger Ledger) *manager {
	return &manager{SharedDRAManager: of, claims: &claimsForAll{of.ResourceClaims(), ledger}}
}

// during calls f while upstream's plugin sees the view. Only the scheduling cycle may call it.
func (m *manager) during(v *view, f func()) {
	m.view.Store(v)
	defer m.view.Store(nil)
	f()
}

// view is what upstream's plugin sees of the cluster.
type view struct {
	slices []*resourceapi.ResourceSlice
	// allocated are the allocated devices; nil for those of the scheduler, which are then kept
	// here.
	allocated *structured.AllocatedState
	// signaled are the allocations that upstream's plugin made, in the order of the claims.
	signaled []*resourceapi.AllocationResult
}

// ResourceSlices implements fwk.SharedDRAManager.
func (m *manager) ResourceSlices() fwk.ResourceSliceLister {
	if v := m.view.Load(); v != nil {
		return v
	}
	return m.SharedDRAManager.ResourceSlices()
}

// ListWithDeviceTaintRules implements fwk.ResourceSliceLister.
func (v *view) ListWithDeviceTaintRules() ([]*resourceapi.ResourceSlice, error) { return v.slices, nil }

// ResourceClaims implements fwk.SharedDRAManager.
func (m *manager) ResourceClaims() fwk.ResourceClaimTracker {
	if v := m.view.Load(); v != nil {
		return &viewedClaims{m.claims, v}
	}
	return m.claims
}

// claimsForAll are the scheduler's claims, for which devices of KubeDevice's are allocated.
type claimsForAll struct {
	fwk.ResourceClaimTracker
	ledger Ledger
}

// GatherAllocatedState implements fwk.ResourceClaimTracker.
func (c *claimsForAll) GatherAllocatedState() (*structured.AllocatedState, error) {
	state, err := c.ResourceClaimTracker.GatherAllocatedState()
	if err != nil {
		return nil, err
	}
	state.AllocatedDevices, err = c.withOurs(state.AllocatedDevices)
	return state, err
}

// ListAllAllocatedDevices implements fwk.ResourceClaimTracker.
func (c *claimsForAll) ListAllAllocatedDevices() (sets.Set[structured.DeviceID], error) {
	devices, err := c.ResourceClaimTracker.ListAllAllocatedDevices()
	if err != nil {
		return nil, err
	}
	return c.withOurs(devices)
}

// withOurs adds the devices of KubeDevice's to a set of its caller's.
func (c *claimsForAll) withOurs(devices sets.Set[structured.DeviceID]) (sets.Set[structured.DeviceID], error) {
	ours, err := c.ledger.Ours(context.Background())
	for id := range ours {
		devices.Insert(id)
	}
	return devices, err
}

// viewedClaims are the scheduler's claims, with the allocated devices of a view.
type viewedClaims struct {
	fwk.ResourceClaimTracker
	view *view
}

// GatherAllocatedState implements fwk.ResourceClaimTracker.
func (c *viewedClaims) GatherAllocatedState() (*structured.AllocatedState, error) {
	if c.view.allocated != nil {
		return c.view.allocated, nil
	}
	state, err := c.ResourceClaimTracker.GatherAllocatedState()
	if err == nil {
		c.view.allocated = state
	}
	return state, err
}

// ListAllAllocatedDevices implements fwk.ResourceClaimTracker.
func (c *viewedClaims) ListAllAllocatedDevices() (sets.Set[structured.DeviceID], error) {
	if c.view.allocated != nil {
		return c.view.allocated.AllocatedDevices, nil
	}
	devices, err := c.ResourceClaimTracker.ListAllAllocatedDevices()
	if err == nil {
		c.view.allocated = &structured.AllocatedState{
			AllocatedDevices:         devices,
			AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
			AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
		}
	}
	return devices, err
}

// SignalClaimPendingAllocation implements fwk.ResourceClaimTracker.
func (c *viewedClaims) SignalClaimPendingAllocation(uid types.UID, claim *resourceapi.ResourceClaim) error {
	err := c.ResourceClaimTracker.SignalClaimPendingAllocation(uid, claim)
	if err == nil {
		c.view.signaled = append(c.view.signaled, claim.Status.Allocation)
	}
	return err
}
