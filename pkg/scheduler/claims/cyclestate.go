// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"maps"
	"sync"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"

	"github.com/kubedevice/kubedevice/pkg/scheduler/claims/allocator"
	"github.com/kubedevice/kubedevice/pkg/scheduler/claims/pool"
)

const (
	cycleKey fwk.StateKey = Name
	// upstreamKey is where upstream's plugin keeps its own.
	upstreamKey fwk.StateKey = dynamicresources.Name
)

// cycle is what the plugin keeps of the scheduling cycle of a pod that it chooses devices for.
type cycle struct {
	plugin  *Plugin
	claims  []*resourceapi.ResourceClaim // those to allocate
	request *allocator.Request           // of these
	pins    []pin                        // of the others
	index   *pool.Index
	// allocated are the devices that are allocated when the cycle begins, and ours those of them
	// that are KubeDevice's, which no eviction frees.
	allocated *structured.AllocatedState
	ours      sets.Set[structured.DeviceID]
	found     *found
	reasons   *reasons
	// wrote says that PreBind was called, which writes allocations.
	wrote bool

	// removed are the pods that a simulation has removed, and freed the devices that only these
	// have.
	removed map[types.UID]*v1.Pod
	freed   sets.Set[structured.DeviceID]
}

// pin restricts a pod to the nodes where an allocated claim can be used.
type pin struct {
	claim string
	nodes *nodeaffinity.NodeSelector
}

// found is what a cycle found on nodes; its simulations share it, and only read.
type found struct {
	mu     sync.Mutex
	scores map[string]int64 // of the nodes that fit
	// left are the nodes that were left to upstream.
	left sets.Set[string]
	// pinned says that an allocated claim kept the pod from a node.
	pinned bool

	// whole is the state of upstream's plugin when it sees the whole cluster.
	once        sync.Once
	whole       fwk.CycleState
	wholeStatus *fwk.Status
}

func newCycle(p *Plugin, namespace string) *cycle {
	return &cycle{
		plugin: p, found: &found{scores: map[string]int64{}, left: sets.New[string]()},
		reasons: newReasons(&holders{manager: p.manager, namespace: namespace}),
	}
}

// Clone returns a cycle for a simulation.
func (c *cycle) Clone() fwk.StateData {
	clone := *c
	clone.removed = maps.Clone(c.removed)
	clone.reasons = c.reasons.simulation()
	return &clone
}

// cycleOf returns nil for a pod that is upstream's.
func cycleOf(state fwk.CycleState) *cycle {
	data, err := state.Read(cycleKey)
	if err != nil {
		return nil
	}
	return data.(*cycle)
}

// holds reports whether a device is allocated.
func (c *cycle) holds(id structured.DeviceID) bool { return c.holdsBut(id, c.freed) }

// holdsBut reports whether a device is allocated, or would be if these were deallocated.
func (c *cycle) holdsBut(id structured.DeviceID, freed sets.Set[structured.DeviceID]) bool {
	return c.ours.Has(id) || c.allocated.AllocatedDevices.Has(id) && !freed.Has(id)
}

// whole returns the state of upstream's plugin after its PreFilter with the whole cluster.
func (c *cycle) whole(ctx context.Context, pod *v1.Pod) (fwk.CycleState, *fwk.Status) {
	c.found.once.Do(func() {
		c.found.whole = framework.NewCycleState()
		// The context of Filter ends when enough nodes are found.
		_, c.found.wholeStatus = c.plugin.upstream.PreFilter(context.WithoutCancel(ctx), c.found.whole, pod, nil)
	})
	return c.found.whole, c.found.wholeStatus
}
