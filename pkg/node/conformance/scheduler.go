// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/plugincall"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// schedulerPlugin is a scheduler plugin that is tested.
type schedulerPlugin struct {
	plugin    devicescheduler.DeviceScheduler
	answering devicescheduler.DeviceScheduler // answers PodFitsDevice and PodAllocate: plugin, or its AfterWait
	options   Options
	caller    *plugincall.Caller
	groups    bool            // it leaves placement to the group scheduler
	node      *types.NodeInfo // as the node publishes it; nil if nothing is known of any
	placed    []placed        // what placesCheck placed
}

// newSchedulerPlugin takes the node of the device plugin that belongs to it, or nil.
func newSchedulerPlugin(plugin devicescheduler.DeviceScheduler, options Options, reported *node) *schedulerPlugin {
	_, concurrent := plugin.(devicescheduler.ConcurrentSafe)
	h := &schedulerPlugin{
		plugin: plugin, answering: plugin, options: options, caller: newCaller(kindScheduler, concurrent),
	}
	if reported == nil {
		h.node = declaredNode(plugin)
		return h
	}
	h.node = reported.Info.Clone()
	h.node.Name = nodeName
	// As the hosts pass it on: what is counted is in all lists.
	for name, all := range reported.KubeCap {
		free, ok := reported.KubeAlloc[name]
		if !ok {
			free = all
		}
		h.node.Capacity[name], h.node.KubeCap[name] = all, all
		h.node.Allocatable[name], h.node.KubeAlloc[name] = free, free
	}
	return h
}

// declared is how many devices of each kind a node has that is made up. It has at most
// declaredKinds kinds, as the checks try each, and all of it, again and again.
const (
	declared      = 8
	declaredKinds = 8
)

// declaredNode returns a node with devices of the kinds that the plugin declares to serve, or nil
// if it declares none.
func declaredNode(plugin devicescheduler.DeviceScheduler) *types.NodeInfo {
	counter, ok := plugin.(devicescheduler.DeviceCounter)
	if !ok {
		return nil
	}
	info := types.NewNodeInfoWithName(nodeName)
	kinds := counter.CountedDevices()
	for _, counted := range kinds[:min(len(kinds), declaredKinds)] {
		for i := range declared {
			name := types.ResourceName(fmt.Sprintf("%s/%s/%d/%s", types.DeviceGroupPrefix, counted.Level, i,
				counted.Resource))
			info.Capacity[name], info.Allocatable[name] = 1, 1
		}
		for _, list := range []types.ResourceList{info.Capacity, info.Allocatable, info.KubeCap, info.KubeAlloc} {
			list[counted.Plain] = declared
		}
	}
	return info
}

// call makes a call of the plugin that has no result.
func (h *schedulerPlugin) call(method string, do func() error) error {
	_, err := callPlugin(h.caller, method, h.options.Limits.Schedule, func() (struct{}, error) {
		return struct{}{}, do()
	})
	return err
}

// add reports a node and returns it as the plugin leaves it. The host keeps Allocatable alone.
func (h *schedulerPlugin) add(published *types.NodeInfo) (*types.NodeInfo, error) {
	allocated, left := published.Clone(), published.Clone()
	err := h.call("AddNode", func() error { h.plugin.AddNode(allocated.Name, allocated); return nil })
	left.Allocatable = maps.Clone(allocated.Allocatable)
	return left, err
}

// withNode reports the node of the test, for as long as do runs.
func (h *schedulerPlugin) withNode(do func(node *types.NodeInfo) error) error {
	if h.node == nil {
		return notApplicable("no node is known: give the device plugin that belongs to it, too, " +
			"or have it implement DeviceCounter")
	}
	h.groups = h.plugin.UsingGroupScheduler()
	node, err := h.add(h.node)
	if err == nil {
		err = do(node)
	}
	return errors.Join(err, h.call("RemoveNode", func() error { h.plugin.RemoveNode(nodeName); return nil }))
}

// answer is what a plugin says to PodFitsDevice.
type answer struct {
	fits    bool
	reasons []devicescheduler.PredicateFailureReason
	score   float64
	pod     *types.PodInfo // as the plugin left it
}

// fits calls PodFitsDevice.
func (h *schedulerPlugin) fits(node *types.NodeInfo, pod *types.PodInfo) (answer, error) {
	a := answer{pod: pod.Clone()}
	allocated := node.Clone()
	err := h.call("PodFitsDevice", func() error {
		a.fits, a.reasons, a.score = h.answering.PodFitsDevice(allocated, a.pod, false)
		return nil
	})
	return a, err
}

// allocate calls PodAllocate and returns the pod as the plugin left it.
func (h *schedulerPlugin) allocate(node *types.NodeInfo, pod *types.PodInfo) (*types.PodInfo, error) {
	allocated, left := node.Clone(), pod.Clone()
	left.NodeName = node.Name
	return left, h.call("PodAllocate", func() error { return h.answering.PodAllocate(allocated, left) })
}

// take calls TakePodResources on the node.
func (h *schedulerPlugin) take(node *types.NodeInfo, pod *types.PodInfo) error {
	allocated := pod.Clone()
	return h.call("TakePodResources", func() error { return h.plugin.TakePodResources(node, allocated) })
}

// giveBack calls ReturnPodResources on the node.
func (h *schedulerPlugin) giveBack(node *types.NodeInfo, pod *types.PodInfo) error {
	allocated := pod.Clone()
	return h.call("ReturnPodResources", func() error { return h.plugin.ReturnPodResources(node, allocated) })
}

// withPods returns the node while the pods hold what they were allocated.
func (h *schedulerPlugin) withPods(node *types.NodeInfo, pods ...*types.PodInfo) (*types.NodeInfo, error) {
	state := node.Clone()
	for _, pod := range pods {
		if err := h.take(state, pod); err != nil {
			return nil, err
		}
	}
	if h.groups {
		for _, pod := range pods {
			grouptree.Take(state.Used, grouptree.Holdings(pod, specOf(pod)))
		}
	}
	return state, nil
}

// specOf returns the containers of a pod in the order in which the samples have them.
func specOf(pod *types.PodInfo) (spec []grouptree.Container) {
	for _, name := range slices.Sorted(maps.Keys(pod.InitContainers)) {
		spec = append(spec, grouptree.Container{Name: name, Kind: grouptree.Init})
	}
	for _, name := range slices.Sorted(maps.Keys(pod.RunningContainers)) {
		spec = append(spec, grouptree.Container{Name: name, Kind: grouptree.Regular})
	}
	return spec
}

// place does what the scheduler does for a pod and one node. why says why the pod does not fit.
func (h *schedulerPlugin) place(node *types.NodeInfo, pod *types.PodInfo) (got *types.PodInfo, why string, err error) {
	a, err := h.fits(node, pod)
	if err != nil {
		return nil, "", err
	}
	if !a.fits {
		return nil, "PodFitsDevice says no: " + sayReasons(a.reasons), nil
	}
	got, err = h.allocate(node, pod)
	if isRefusal(err) {
		return nil, err.Error(), nil
	}
	if err != nil {
		return nil, "", err
	}
	if h.groups {
		tree, err := grouptree.CompileDeviceTree(node.Allocatable, node.Scorer)
		if err != nil {
			return nil, "", fmt.Errorf("after AddNode, %w", err)
		}
		request, err := grouptree.CompileRequest(got, specOf(got))
		if err != nil {
			return nil, "", fmt.Errorf("after PodAllocate, %w", err)
		}
		placement := grouptree.NewPlacer(0).Place(tree, tree.Dense(node.Used), request)
		if !placement.Fits {
			return nil, "the group scheduler finds no devices for what PodAllocate requests", nil
		}
		request.Apply(tree, placement, got)
	}
	return got, "", nil
}

func sayReasons(reasons []devicescheduler.PredicateFailureReason) string {
	var texts []string
	for _, reason := range reasons {
		texts = append(texts, reason.GetReason())
	}
	return brief(strings.Join(texts, ", "))
}

// heldResources returns what the pod's containers are allocated, added up.
func heldResources(pod *types.PodInfo) types.ResourceList {
	return grouptree.Holdings(pod, specOf(pod))
}

// sample is a pod that requests devices.
type sample struct {
	what  string // what it requests, in words
	plain types.ResourceName
	pod   *types.PodInfo
}

// counting returns a pod whose containers request so many of the plain resource each.
func counting(plain types.ResourceName, quantity int64, containers ...string) sample {
	pod := types.NewPodInfo()
	pod.Name = "pod-1"
	for _, name := range containers {
		container := types.NewContainerInfo()
		container.KubeRequests[plain] = quantity
		if init, ok := strings.CutPrefix(name, "init:"); ok {
			pod.InitContainers[init] = *container
		} else {
			pod.RunningContainers[name] = *container
		}
	}
	return sample{fmt.Sprintf("%d %s in %s", quantity, plain, strings.Join(containers, " and ")), plain, pod}
}

// byPath returns a pod that requests a quantity of a device's resource by its path.
func byPath(path resource.Path, quantity int64) sample {
	name := types.ResourceName(path.DeviceLevel() + "/a/" + path.Resource())
	container := types.NewContainerInfo()
	container.Requests[name] = quantity
	pod := podOf(container)
	pod.NodeName = ""
	return sample{what: fmt.Sprintf("%d %s", quantity, name), pod: pod}
}

// plains returns the plain resources that the node counts.
func (h *schedulerPlugin) plains() (names []types.ResourceName) {
	for _, name := range slices.Sorted(maps.Keys(h.node.KubeAlloc)) {
		if h.node.KubeAlloc[name] > 0 {
			names = append(names, name)
		}
	}
	return names
}

// paths returns one path for each level and resource of the node's devices.
func paths(node *types.NodeInfo) (list []resource.Path) {
	seen := map[[2]string]bool{}
	for _, name := range slices.Sorted(maps.Keys(node.Allocatable)) {
		path, err := resource.ParsePath(name)
		kind := [2]string{path.DeviceLevel(), path.Resource()}
		if err == nil && path.Depth() > 0 && !seen[kind] && node.Allocatable[name] > 0 {
			seen[kind] = true
			list = append(list, path)
		}
	}
	return list
}

// samples returns pods that request some of what the node has, those by count first.
func (h *schedulerPlugin) samples(node *types.NodeInfo) (list []sample) {
	for _, plain := range h.plains() {
		list = append(list, counting(plain, 1, "main"), counting(plain, 1, "init:setup", "main"))
		if h.node.KubeAlloc[plain] > 1 {
			list = append(list, counting(plain, 2, "main"), counting(plain, 1, "main", "side"))
		}
	}
	for _, path := range paths(node) {
		list = append(list, byPath(path, 1))
	}
	return list
}

// requests reports whether the plugin has made requests, or allocations, of a pod's.
func requests(pod *types.PodInfo) bool {
	for _, containers := range []map[string]types.ContainerInfo{pod.InitContainers, pod.RunningContainers} {
		for _, container := range containers {
			if len(container.DevRequests)+len(container.AllocateFrom) > 0 {
				return true
			}
		}
	}
	return false
}

// served returns the samples that the plugin serves on the node, each with its allocation.
func (h *schedulerPlugin) served(node *types.NodeInfo) (list []sample, allocated []*types.PodInfo, err error) {
	for _, s := range h.samples(node) {
		got, why, err := h.place(node, s.pod)
		if err != nil {
			return nil, nil, fmt.Errorf("for a pod that requests %s, %w", s.what, err)
		}
		if why == "" && requests(got) {
			list, allocated = append(list, s), append(allocated, got)
		}
	}
	if len(list) == 0 {
		return nil, nil, notApplicable("no request is known that it serves")
	}
	return list, allocated, nil
}

// sameRequests returns how what plugins write into a pod differs, or nil.
func sameRequests(a, b *types.PodInfo) error {
	for i, containers := range []map[string]types.ContainerInfo{a.InitContainers, a.RunningContainers} {
		others := []map[string]types.ContainerInfo{b.InitContainers, b.RunningContainers}[i]
		if len(containers) != len(others) {
			return fmt.Errorf("the pod has %d containers, then %d", len(containers), len(others))
		}
		for name, container := range containers {
			other, ok := others[name]
			if !ok {
				return fmt.Errorf("container %q is gone", name)
			}
			if err := sameList(container.DevRequests, other.DevRequests); err != nil {
				return fmt.Errorf("DevRequests of container %q: %w", name, err)
			}
			if !maps.Equal(container.AllocateFrom, other.AllocateFrom) {
				return fmt.Errorf("AllocateFrom of container %q is %v, then %v", name, container.AllocateFrom,
					other.AllocateFrom)
			}
			if !maps.Equal(container.Scorer, other.Scorer) {
				return fmt.Errorf("Scorer of container %q is %v, then %v", name, container.Scorer, other.Scorer)
			}
		}
	}
	return nil
}

// withoutZeros returns the list without entries of 0, which mean the same as none.
func withoutZeros(list types.ResourceList) types.ResourceList {
	copied := types.ResourceList{}
	for name, quantity := range list {
		if quantity != 0 {
			copied[name] = quantity
		}
	}
	return copied
}
