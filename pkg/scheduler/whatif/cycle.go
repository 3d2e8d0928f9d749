// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// cycle is the scheduling cycle of a pod in a simulation, after Filter.
type cycle struct {
	simulation *simulation
	profile    *profile
	pod        *v1.Pod
	state      fwk.CycleState
	// rejected is the status with which PreFilter rejected the pod on all nodes, or nil.
	rejected *fwk.Status
	// fits are the nodes on which the pod fits, and misfits the others with their reasons, both in
	// the order of their names.
	fits    []fwk.NodeInfo
	misfits []misfit
}

// misfit is a node on which a pod does not fit.
type misfit struct {
	node   fwk.NodeInfo
	status *fwk.Status
}

// cycle runs a pod's cycle up to Filter, as upstream's schedulePod does, but on all nodes.
func (sim *simulation) cycle(ctx context.Context, pod *v1.Pod) (*cycle, error) {
	served := sim.engine.serving[pod.Spec.SchedulerName]
	if served == nil {
		without := ""
		if !requestsDevices(pod) {
			without = "requests no devices, and "
		}
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %q %shas the scheduler name %q, which this scheduler "+
			"does not serve: it serves %s", klog.KObj(pod), without, pod.Spec.SchedulerName,
			strings.Join(slices.Sorted(maps.Keys(sim.engine.serving)), ", ")))
	}
	if pod.Spec.SchedulingGroup != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %q belongs to a pod group, and the pods of a group are "+
			"placed together: what-if does not support pod groups", klog.KObj(pod)))
	}
	sim.enter()
	c := &cycle{simulation: sim, profile: served, pod: pod, state: framework.NewCycleState()}
	if err := sim.budget.step(); err != nil {
		return nil, err
	}
	nodes, err := sim.nodes()
	if err != nil {
		return nil, err
	}
	among, status, rejecting := served.framework.RunPreFilterPlugins(ctx, c.state, pod)
	if !status.IsSuccess() {
		if !status.IsRejected() {
			return nil, status.AsError()
		}
		c.rejected = status
		return c, nil
	}
	for _, node := range nodes {
		if !among.AllNodes() && !among.NodeNames.Has(node.Node().Name) {
			c.misfits = append(c.misfits, misfit{node, fwk.NewStatus(fwk.UnschedulableAndUnresolvable,
				fmt.Sprintf("didn't satisfy plugin(s) %v", slices.Sorted(maps.Keys(rejecting))))})
			continue
		}
		if err := sim.budget.step(); err != nil {
			return nil, err
		}
		status := served.framework.RunFilterPluginsWithNominatedPods(ctx, c.state, pod, node)
		if status.IsSuccess() {
			c.fits = append(c.fits, node)
		} else {
			c.misfits = append(c.misfits, misfit{node, status})
		}
	}
	return c, nil
}

// best returns the nodes that fit best, at least one: the scheduler may take any of them.
func (c *cycle) best(ctx context.Context) ([]fwk.NodeInfo, error) {
	for _, node := range c.fits {
		if node.Node().Name == c.pod.Status.NominatedNodeName {
			return []fwk.NodeInfo{node}, nil
		}
	}
	runs := c.profile.framework
	if len(c.fits) == 1 || !runs.HasScorePlugins() {
		return c.fits, nil
	}
	if status := runs.RunPreScorePlugins(ctx, c.state, c.pod, c.fits); !status.IsSuccess() {
		return nil, status.AsError()
	}
	scores, status := runs.RunScorePlugins(ctx, c.state, c.pod, c.fits)
	if !status.IsSuccess() {
		return nil, status.AsError()
	}
	highest := slices.MaxFunc(scores, func(a, b fwk.NodePluginScores) int {
		return cmp.Compare(a.TotalScore, b.TotalScore)
	}).TotalScore
	var best []fwk.NodeInfo
	for i := range scores {
		if scores[i].TotalScore == highest {
			best = append(best, c.fits[i])
		}
	}
	return best, nil
}

// place puts a pod that fits somewhere on its node, so that the pods after it see it there.
func (c *cycle) place(ctx context.Context) (*schedulerapi.Placement, error) {
	best, err := c.best(ctx)
	if err != nil {
		return nil, err
	}
	node := best[0].Node().Name
	placed := &schedulerapi.Placement{
		Pod: schedulerapi.PodName{Namespace: c.pod.Namespace, Name: c.pod.Name}, Node: node,
		EquallyGood: nodeNames(best[1:]),
	}
	if c.profile.devices != nil {
		allocation, err := c.profile.devices.Choose(ctx, c.state, c.pod, best[0])
		if err != nil {
			return nil, fmt.Errorf("choose devices on node %q: %w", node, err)
		}
		placed.Containers = containers(allocation)
	}
	return placed, c.simulation.assume(c.pod, node)
}

func nodeNames(nodes []fwk.NodeInfo) []string {
	var all []string
	for _, node := range nodes {
		all = append(all, node.Node().Name)
	}
	return all
}

// containers returns the devices that the containers of a pod get, nil for a pod without devices.
func containers(allocation *sdk.PodInfo) []schedulerapi.ContainerDevices {
	if allocation == nil {
		return nil
	}
	var all []schedulerapi.ContainerDevices
	for _, list := range []map[string]sdk.ContainerInfo{allocation.InitContainers, allocation.RunningContainers} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			granted := schedulerapi.ContainerDevices{Name: name}
			quantities := map[sdk.ResourceName]int64{}
			for request, device := range list[name].AllocateFrom {
				quantities[device] += list[name].DevRequests[request]
			}
			for _, device := range slices.Sorted(maps.Keys(quantities)) {
				path, err := resource.ParsePath(device)
				if err != nil {
					continue // the allocation is the scheduler's own
				}
				granted.Devices = append(granted.Devices, schedulerapi.DeviceShare{
					Path: path.Device(), Resource: path.Resource(), Quantity: quantities[device],
				})
			}
			if len(granted.Devices) > 0 {
				all = append(all, granted)
			}
		}
	}
	return all
}

// fitsWithout reports whether the pod fits a node after some of the node's pods have ended. It
// works like preemption's simulation.
func (c *cycle) fitsWithout(ctx context.Context, node fwk.NodeInfo, ended []*v1.Pod) (bool, error) {
	if err := c.simulation.budget.step(); err != nil {
		return false, err
	}
	state, left := c.state.Clone(), node.Snapshot()
	for _, pod := range ended {
		info, err := framework.NewPodInfo(pod)
		if err != nil {
			return false, err
		}
		if err := left.RemovePod(klog.FromContext(ctx), pod); err != nil {
			return false, err
		}
		status := c.profile.framework.RunPreFilterExtensionRemovePod(ctx, state, c.pod, info, left)
		if !status.IsSuccess() {
			return false, status.AsError()
		}
	}
	return c.profile.framework.RunFilterPluginsWithNominatedPods(ctx, state, c.pod, left).IsSuccess(), nil
}
