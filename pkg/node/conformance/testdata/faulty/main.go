// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A pair of plugins in one file, for gears: device nodes that every machine has. Each has the one
// fault that FAULT names in the environment, or none.
package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const count types.ResourceName = "example.com/gear"

// fault reports whether the plugin has that fault.
func fault(name string) bool { return os.Getenv("FAULT") == name }

// gears are their device nodes by ID.
var gears = map[string]string{"g0": "/dev/null", "g1": "/dev/zero", "g2": "/dev/full", "g3": "/dev/random"}

func nameOf(id string) types.ResourceName {
	if fault("IDs differ from process to process") {
		id += fmt.Sprintf("-%d", os.Getpid())
	}
	return types.ResourceName("resource/group/box/0/gear/" + id + "/units")
}

type node struct {
	mu     sync.Mutex
	calls  int
	kept   *types.NodeInfo
	shared map[string]string
	busy   atomic.Bool
	named  atomic.Int32
	even   map[string]bool // by the IDs of an allocation
}

var _ device.Device = (*node)(nil)

// isEvenCall reports whether it is the second, fourth, … call with these IDs.
func (n *node) isEvenCall(ids []string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.even == nil {
		n.even = map[string]bool{}
	}
	key := strings.Join(ids, " ")
	even := n.even[key]
	n.even[key] = !even
	return even
}

func (n *node) GetName() string {
	if fault("GetName hangs after the file is loaded") && n.named.Add(1) > 1 {
		select {}
	}
	if fault("it has no name") {
		return ""
	}
	return "gears"
}

func (n *node) New() error {
	if fault("New hangs") {
		select {}
	}
	if fault("New panics") {
		panic("no keys")
	}
	return nil
}

func (n *node) ConcurrentSafe() bool { return true }

func (n *node) Start() error {
	if fault("Start returns an error") {
		return errors.New("the gearbox is open")
	}
	return nil
}

func (n *node) UpdateNodeInfo(info *types.NodeInfo) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls++
	if fault("UpdateNodeInfo panics") {
		panic("no oil")
	}
	if fault("the inventory differs from call to call") && n.calls%2 == 0 {
		return nil
	}
	broken, _ := os.ReadFile(os.Getenv("GEARS_BROKEN"))
	healthy := int64(0)
	for id := range gears {
		name := nameOf(id)
		if fault("a name does not parse") {
			name += "/"
		}
		info.Capacity[name] = 1
		if string(broken) == id && !fault("a broken device stays allocatable") {
			continue
		}
		info.Allocatable[name] = 1
		healthy++
	}
	if fault("a quantity is negative") {
		info.Capacity[nameOf("g9")] = -1
	}
	if fault("two devices have one ID") {
		info.Capacity["resource/group/box/1/gear/g0/units"] = 1
		info.Allocatable["resource/group/box/1/gear/g0/units"] = 1
	}
	info.Capacity[count], info.KubeCap[count] = int64(len(gears)), int64(len(gears))
	info.Allocatable[count], info.KubeAlloc[count] = healthy, healthy
	if fault("it replaces the maps") {
		capacity := types.ResourceList{}
		for name, quantity := range info.Capacity {
			if !strings.Contains(string(name), "another") {
				capacity[name] = quantity
			}
		}
		info.Capacity = capacity
	}
	if fault("it keeps what it was given") {
		if n.kept != nil {
			maps.Copy(n.kept.Capacity, info.Capacity)
		}
		n.kept = info
	}
	return nil
}

func (n *node) DeviceHealth() ([]device.Health, error) {
	if fault("it blocks when its devices' health is read") {
		select {}
	}
	if fault("it panics when its devices' health is read") {
		panic("no gauge")
	}
	var list []device.Health
	if fault("it says how an unknown device is") {
		list = append(list, device.Health{Device: "resource/group/box/0/gear/g9", Healthy: true})
	}
	broken, _ := os.ReadFile(os.Getenv("GEARS_BROKEN"))
	if len(broken) > 0 && fault("it calls os.Exit when a device is broken") {
		os.Exit(3)
	}
	if len(broken) == 0 || fault("it does not say why a device is unhealthy") {
		return list, nil
	}
	h := device.Health{Device: strings.TrimSuffix(string(nameOf(string(broken))), "/units"), Reason: "Worn"}
	switch {
	case fault("a broken device has no reason"):
		h.Reason = ""
	case fault("a reason is a sentence"):
		h.Reason = "a tooth is missing"
	case fault("a device is unhealthy since tomorrow"):
		h.Since = time.Now().Add(24 * time.Hour)
	}
	return append(list, h), nil
}

func (n *node) Allocate(
	pod *types.PodInfo, container *types.ContainerInfo,
) ([]device.Mount, []string, map[string]string, error) {
	if fault("it hangs for giant requests") && len(container.AllocateFrom) > 1000 {
		select {}
	}
	var ids []string
	for _, name := range container.AllocateFrom {
		path, err := resource.ParsePath(name)
		if fault("it slices names that it has not checked") {
			_ = strings.Split(string(name), "/")[4]
		}
		if err != nil || path.DeviceLevel() != "gear" {
			continue
		}
		id, _, _ := strings.Cut(path.DeviceID(), "-")
		if fault("it calls os.Exit for an unknown device") && gears[id] == "" {
			os.Exit(3)
		}
		if gears[id] == "" && !fault("it accepts an unknown device") {
			return nil, nil, nil, fmt.Errorf("no gear %q", id)
		}
		ids = append(ids, id)
	}
	if len(ids) == 0 && !fault("it gives something for nothing") {
		return nil, nil, nil, nil
	}
	if fault("a device alone gives nothing") && len(ids) == 1 {
		return nil, nil, nil, nil
	}
	slices.Sort(ids)
	if fault("the answer has no order") && n.isEvenCall(ids) {
		slices.Reverse(ids)
	}
	if fault("it leaves a device out") && len(ids) > 2 {
		ids = ids[1:]
	}
	if fault("it writes into the pod") {
		pod.Name = "geared"
	}
	if fault("a goroutine panics") && len(ids) == len(gears) {
		done := make(chan struct{})
		go func() { panic("a tooth is missing") }()
		<-done
	}
	if fault("it is not safe for concurrent use") {
		overlap(&n.busy)
	}
	var paths []string
	for _, id := range ids {
		path := gears[id]
		if fault("it always gives the same device") {
			path, ids = "/dev/null", []string{"g0"}
		}
		if fault("a path is relative") {
			path = strings.TrimPrefix(path, "/")
		}
		if path != "" {
			paths = append(paths, path)
		}
	}
	envs := map[string]string{"GEARS": strings.Join(ids, ",")}
	if fault("an environment variable has no valid name") {
		envs["GEARS=IN"] = "1"
	}
	if fault("answers share a map") {
		n.mu.Lock()
		defer n.mu.Unlock()
		maps.Copy(n.shared, envs)
		envs = n.shared
	}
	return nil, paths, envs, nil
}

// CreateDevicePlugin is the entry point of the device plugin.
func CreateDevicePlugin() (device.Device, error) {
	if fault("the device plugin's entry point returns an error") {
		return nil, errors.New("no licence")
	}
	n := &node{shared: map[string]string{}}
	if fault("a method has another type") {
		return struct {
			*node
			mistyped
		}{node: n}, nil
	}
	if fault("a variable of the firewall has no valid name") {
		return struct {
			*node
			walled
		}{node: n}, nil
	}
	return n, nil
}

type mistyped struct{}

func (mistyped) AllocateContainer(types.PodInfo, types.ContainerInfo) (*device.Allocation, error) {
	return nil, nil
}

type walled struct{}

func (walled) DenyEnvs() map[string]string { return map[string]string{"A=B": "none"} }

// scheduler places gears by itself: it does not use the group scheduler.
type scheduler struct {
	mu     sync.Mutex
	nodes  map[string]int
	busy   atomic.Bool
	calls  int
	starts int // of processes, this one included
}

func (s *scheduler) GetName() string {
	if fault("the scheduler plugin has no name") {
		return "\n"
	}
	return "gears"
}
func (s *scheduler) UsingGroupScheduler() bool { return false }
func (s *scheduler) ConcurrentSafe() bool      { return true }
func (s *scheduler) Pure() bool                { return true }

func (s *scheduler) CountedDevices() []devicescheduler.CountedDevice {
	counted := devicescheduler.CountedDevice{Plain: count, Level: "gear", Resource: "units"}
	if fault("it counts devices by a plain name that is none") {
		counted.Plain = "gear"
	}
	return []devicescheduler.CountedDevice{counted}
}

func (s *scheduler) AddNode(name string, info *types.NodeInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[name]++
	if fault("the plugins use different levels") {
		for id := range gears {
			delete(info.Allocatable, nameOf(id))
			info.Allocatable[types.ResourceName("resource/group/"+level()+"/"+id+"/units")] = 1
		}
	}
	if fault("AddNode writes a name that does not parse") {
		info.Allocatable["resource/group/gear/0"] = 1
	}
	if fault("AddNode renames devices with each call") {
		info.Allocatable[types.ResourceName(fmt.Sprintf("resource/group/gear/extra-%d/units", s.nodes[name]))] = 1
	}
}

func (s *scheduler) RemoveNode(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, name)
}

// level is the level of gears for the scheduler plugin.
func level() string {
	if fault("the plugins use different levels") {
		return "cog"
	}
	return "gear"
}

// free returns the names of the node's gears that no pod uses, sorted.
func free(info *types.NodeInfo) []types.ResourceName {
	var names []types.ResourceName
	for _, name := range slices.Sorted(maps.Keys(info.Allocatable)) {
		path, err := resource.ParsePath(name)
		if err == nil && path.DeviceLevel() == level() && info.Allocatable[name] == 1 && info.Used[name] < 1 {
			names = append(names, name)
		}
	}
	if fault("the answers depend on the order of a map") {
		names = names[:0]
		for name := range info.Allocatable {
			path, err := resource.ParsePath(name)
			if err == nil && path.DeviceLevel() == level() && info.Used[name] < 1 {
				names = append(names, name)
			}
		}
	}
	if fault("it gives away what is used") {
		names = names[:0]
		for _, name := range slices.Sorted(maps.Keys(info.Allocatable)) {
			if strings.HasSuffix(string(name), "/units") {
				names = append(names, name)
			}
		}
	}
	return names
}

// place writes what the pod's containers get, or returns why not.
func (s *scheduler) place(info *types.NodeInfo, pod *types.PodInfo) *resource.InsufficientResourceError {
	left := free(info)
	if fault("it depends on the name of the pod") && pod.Name == "another-pod" {
		slices.Reverse(left)
	}
	if fault("another process answers otherwise") && s.starts%2 == 0 {
		slices.Reverse(left)
	}
	all := int64(len(left))
	for _, containers := range []map[string]types.ContainerInfo{pod.InitContainers, pod.RunningContainers} {
		for _, name := range slices.Sorted(maps.Keys(containers)) {
			container := containers[name]
			wants := container.KubeRequests[count]
			if fault("it ignores what pods count") {
				wants = 0
			}
			if fault("it panics for a negative request") {
				_ = make([]int, min(wants, 10))
			}
			if fault("it gives fewer than were requested") {
				wants = min(wants, int64(len(left)))
			}
			if wants > int64(len(left)) {
				return resource.NewInsufficientResourceError(count, wants, info.Used[count], all)
			}
			if fault("it replaces what another plugin wrote") && wants > 0 {
				container.DevRequests = types.ResourceList{}
			}
			for i := range max(0, wants) {
				request := types.ResourceName(fmt.Sprintf("resource/group/gear/%s-%d/units", name, i))
				container.DevRequests[request] = 1
				if !fault("it forgets to place") {
					container.AllocateFrom[request] = left[i]
				}
			}
			left = left[max(0, min(wants, int64(len(left)))):]
			containers[name] = container
		}
	}
	return nil
}

func (s *scheduler) PodFitsDevice(
	info *types.NodeInfo, pod *types.PodInfo, _ bool,
) (bool, []devicescheduler.PredicateFailureReason, float64) {
	if fault("it is not safe for concurrent use either") {
		overlap(&s.busy)
	}
	if fault("it refuses pods of others") && len(pod.RunningContainers["main"].KubeRequests) == 0 {
		return false, nil, 0
	}
	short := s.place(info, pod)
	switch {
	case short != nil && fault("it gives no reason"):
		return false, nil, 0
	case short != nil:
		return false, []devicescheduler.PredicateFailureReason{short}, 0
	case fault("the score is not a number"):
		return true, nil, math.NaN()
	}
	return true, nil, 1
}

func (s *scheduler) PodAllocate(info *types.NodeInfo, pod *types.PodInfo) error {
	if short := s.place(info, pod); short != nil {
		return short
	}
	return nil
}

// held returns the gears that the pod's containers hold.
func held(info *types.NodeInfo, pod *types.PodInfo) types.ResourceList {
	names := types.ResourceList{}
	for _, containers := range []map[string]types.ContainerInfo{pod.InitContainers, pod.RunningContainers} {
		for _, container := range containers {
			for _, name := range container.AllocateFrom {
				path, err := resource.ParsePath(name)
				if _, has := info.Allocatable[name]; err == nil && path.DeviceLevel() == level() && has {
					names[name] = 1
				}
				if fault("a device that is gone is an error") && strings.Contains(string(name), "no-such-device") {
					return nil
				}
			}
		}
	}
	return names
}

func (s *scheduler) TakePodResources(info *types.NodeInfo, pod *types.PodInfo) error {
	s.mu.Lock()
	s.calls++
	calls := s.calls
	s.mu.Unlock()
	names := held(info, pod)
	if names == nil {
		return errors.New("no such gear")
	}
	for name, quantity := range names {
		if fault("what it takes depends on how often it is called") && calls%2 == 0 {
			quantity++
		}
		info.Used[name] += quantity
	}
	return nil
}

func (s *scheduler) ReturnPodResources(info *types.NodeInfo, pod *types.PodInfo) error {
	for name, quantity := range held(info, pod) {
		if fault("it returns nothing") {
			continue
		}
		info.Used[name] -= quantity
	}
	return nil
}

type misnamed struct{ *scheduler }

func (misnamed) Revision() int { return 0 }

// translator leaves placement to the group scheduler. It requests gears of one box where a node has
// a box with many.
type translator struct {
	*scheduler
	revision uint64
	pods     map[string]int
}

func (t *translator) UsingGroupScheduler() bool { return true }
func (t *translator) Pure() bool                { return false }
func (t *translator) Revision() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if fault("Revision does not grow") {
		return 0
	}
	return t.revision
}

func (t *translator) AddNode(name string, info *types.NodeInfo) {
	t.scheduler.AddNode(name, info)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.revision++
}

func (t *translator) PodFitsDevice(
	info *types.NodeInfo, pod *types.PodInfo, _ bool,
) (bool, []devicescheduler.PredicateFailureReason, float64) {
	if err := t.PodAllocate(info, pod); err != nil {
		return false, []devicescheduler.PredicateFailureReason{
			resource.NewInsufficientResourceError(count, 0, 0, info.Allocatable[count]),
		}, 0
	}
	return true, nil, 0
}

func (t *translator) PodAllocate(info *types.NodeInfo, pod *types.PodInfo) error {
	return t.translate(info, pod, 0)
}

func (t *translator) translate(info *types.NodeInfo, pod *types.PodInfo, less int64) error {
	t.mu.Lock()
	names := "gear"
	if len(t.nodes) > 1 {
		names = "gear-of-many"
	}
	t.mu.Unlock()
	if fault("it translates by what is used") && len(info.Used) > 0 {
		names = "gear-of-used"
	}
	for _, containers := range []map[string]types.ContainerInfo{pod.InitContainers, pod.RunningContainers} {
		for name, container := range containers {
			wants := container.KubeRequests[count]
			if wants > info.Allocatable[count] {
				return errors.New("too few gears")
			}
			for i := range max(0, wants-less) {
				container.DevRequests[types.ResourceName(fmt.Sprintf("resource/group/box/0/gear/%s-%d/units", names, i))] = 1
			}
			containers[name] = container
		}
	}
	return nil
}

func (t *translator) TakePodResources(*types.NodeInfo, *types.PodInfo) error   { return nil }
func (t *translator) ReturnPodResources(*types.NodeInfo, *types.PodInfo) error { return nil }

func (t *translator) AfterWait() devicescheduler.DeviceScheduler { return waited{t} }

type waited struct{ *translator }

func (w waited) PodFitsDevice(
	info *types.NodeInfo, pod *types.PodInfo, _ bool,
) (bool, []devicescheduler.PredicateFailureReason, float64) {
	return w.PodAllocate(info, pod) == nil, nil, 0
}

func (w waited) PodAllocate(info *types.NodeInfo, pod *types.PodInfo) error {
	if fault("who has waited gets less") {
		return w.translate(info, pod, 1)
	}
	return w.translate(info, pod, 0)
}

// Preferring returns what a cluster uses whose pods do not wait.
func (t *translator) Preferring() devicescheduler.DeviceScheduler {
	if fault("what prefers refines nothing") {
		return waited{t}
	}
	return preferring{t}
}

type preferring struct{ *translator }

func (preferring) Refine(*types.NodeInfo, *types.PodInfo) (quality float64, prefers bool) {
	return 0, false
}

func (t *translator) PodHolds(_, uid string, _ *types.PodInfo) { t.pods[uid]++ }
func (t *translator) PodGone(_, uid string) {
	if fault("PodGone panics for an unknown pod") && t.pods[uid] == 0 {
		panic("unknown pod")
	}
	delete(t.pods, uid)
}

// CreateDeviceSchedulerPlugin is the entry point of the scheduler plugin.
func CreateDeviceSchedulerPlugin() (devicescheduler.DeviceScheduler, error) {
	if fault("the entry point panics") {
		panic("stuck")
	}
	starts, err := os.OpenFile(os.Getenv("GEARS_STARTS"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer starts.Close()
	if _, err := starts.WriteString("."); err != nil {
		return nil, err
	}
	file, err := starts.Stat()
	if err != nil {
		return nil, err
	}
	s := &scheduler{nodes: map[string]int{}, starts: int(file.Size())}
	switch {
	case fault("a method of the scheduler plugin has another type"):
		return misnamed{s}, nil
	case fault("it translates by what is used"), fault("none, with the group scheduler"), fault("Revision does not grow"),
		fault("who has waited gets less"), fault("what prefers refines nothing"), fault("PodGone panics for an unknown pod"):
		return &translator{scheduler: s, pods: map[string]int{}}, nil
	}
	return s, nil
}

// overlap panics if two calls are in it at the same time, as Go does, with luck, for a map.
func overlap(busy *atomic.Bool) {
	if busy.Swap(true) {
		panic("concurrent calls")
	}
	time.Sleep(time.Millisecond)
	busy.Store(false)
}
