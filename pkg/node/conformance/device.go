// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/plugincall"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// maxDevices is how many devices of a plugin are allocated: what holds for so many holds for more.
const maxDevices = 64

// devicePlugin is a device plugin that is tested.
type devicePlugin struct {
	plugin  device.Device
	options Options
	caller  *plugincall.Caller
	started bool
	last    *types.NodeInfo // the last report
	placed  []placed        // of the scheduler plugin
}

func newDevicePlugin(plugin device.Device, options Options) *devicePlugin {
	_, concurrent := plugin.(device.ConcurrentSafe)
	return &devicePlugin{plugin: plugin, options: options, caller: newCaller(kindDevice, concurrent)}
}

// newCaller returns a caller that contains the calls of a plugin.
func newCaller(kind string, concurrent bool) *plugincall.Caller {
	return plugincall.New(plugincall.Policy{
		Kind: kind, Clock: clock.RealClock{}, TimeoutCoversQueue: true,
		Observe: func(string, string, time.Duration, error) {},
	}, "", concurrent)
}

// callPlugin makes a call. The error names the method and what came of it.
func callPlugin[T any](
	caller *plugincall.Caller, method string, limit time.Duration, do func() (T, error),
) (answer T, err error) {
	var own error    // what the plugin returned: an answer
	var stack string // of its panic
	answer, err = plugincall.Do(context.Background(), caller, plugincall.Call{Method: method, Timeout: limit},
		func() (T, error) {
			defer func() {
				if cause := recover(); cause != nil {
					stack = string(debug.Stack())
					panic(cause)
				}
			}()
			answer, err := do()
			own = err
			return answer, nil
		})
	var failure *plugincall.Failure
	if errors.As(err, &failure) {
		return answer, crashOf(fmt.Errorf("%s: %w", method, failure), failure, stack)
	}
	if own != nil {
		return answer, &refusedBy{method, own}
	}
	return answer, nil
}

// refusedBy is an error that a plugin returned.
type refusedBy struct {
	method string
	error
}

func (r *refusedBy) Error() string { return fmt.Sprintf("%s returned the error %q", r.method, r.error) }

// isRefusal reports whether the plugin answered with an error, as against a panic or no answer.
func isRefusal(err error) bool {
	var r *refusedBy
	return errors.As(err, &r)
}

// start calls Start, once per process.
func (d *devicePlugin) start() error {
	if d.started {
		return nil
	}
	_, err := callPlugin(d.caller, "Start", d.options.Limits.Start,
		func() (struct{}, error) { return struct{}{}, d.plugin.Start() })
	d.started = err == nil
	return err
}

// update has the plugin add what it has to info.
func (d *devicePlugin) update(info *types.NodeInfo) error {
	if err := d.start(); err != nil {
		return err
	}
	_, err := callPlugin(d.caller, "UpdateNodeInfo", d.options.Limits.Update,
		func() (struct{}, error) { return struct{}{}, d.plugin.UpdateNodeInfo(info) })
	return err
}

// nodeName is the name of the node in all calls that are not about names.
const nodeName = "node-1"

// inventory returns what the plugin reports, as a copy.
func (d *devicePlugin) inventory() (*types.NodeInfo, error) {
	info := types.NewNodeInfoWithName(nodeName)
	if err := d.update(info); err != nil {
		return nil, err
	}
	d.last = info.Clone()
	return info.Clone(), nil
}

// allocate returns what the plugin answers for a container of some pod. The answer is the plugin's
// own.
func (d *devicePlugin) allocate(pod *types.PodInfo, container *types.ContainerInfo) (device.Allocation, error) {
	if err := d.start(); err != nil {
		return device.Allocation{}, err
	}
	method := "Allocate"
	if _, rich := d.plugin.(device.Allocator); rich {
		method = "AllocateContainer"
	}
	return callPlugin(d.caller, method, d.options.Limits.Allocate,
		func() (device.Allocation, error) { return plugins.Allocate(d.plugin, pod, container) })
}

// allocateDevices is allocate for a container that has exactly these devices.
func (d *devicePlugin) allocateDevices(devices ...deviceOf) (device.Allocation, error) {
	pod, container := claim(devices...)
	answer, err := d.allocate(pod, container)
	return inject.NewAddition("", answer).Allocation, err
}

// deviceOf is a device of a node: its resources, of which a container may be allocated some.
type deviceOf struct {
	path      string // without prefix and resource
	resources types.ResourceList
}

// devices returns the node's devices that may be allocated, in the order of their names. The
// instances of levels without resources of their own are no devices.
func devices(info *types.NodeInfo) []deviceOf {
	found := map[string]types.ResourceList{}
	for name, quantity := range info.Allocatable {
		path, err := resource.ParsePath(name)
		if err != nil || path.Depth() == 0 || quantity < 1 {
			continue
		}
		if found[path.Device()] == nil {
			found[path.Device()] = types.ResourceList{}
		}
		found[path.Device()][name] = quantity
	}
	var list []deviceOf
	for _, path := range slices.Sorted(maps.Keys(found)) {
		list = append(list, deviceOf{path, found[path]})
	}
	return list
}

// available returns devices of the plugin, of which there must be some.
func (d *devicePlugin) available() ([]deviceOf, error) {
	info, err := d.inventory()
	if err != nil {
		return nil, err
	}
	list := devices(info)
	if len(list) == 0 {
		return nil, notApplicable("the node has no device of this plugin that could be allocated")
	}
	return list[:min(len(list), maxDevices)], nil
}

// claim returns a pod with one container that has exactly these devices.
func claim(devices ...deviceOf) (*types.PodInfo, *types.ContainerInfo) {
	container := types.NewContainerInfo()
	for i, d := range devices {
		for _, name := range slices.Sorted(maps.Keys(d.resources)) {
			request := name // the placeholders are the user's, and tell the plugin nothing
			if at := strings.LastIndexByte(string(name), '/'); at >= 0 {
				request = types.ResourceName(fmt.Sprintf("%s/r/%d%s", types.DeviceGroupPrefix, i, name[at:]))
			}
			container.DevRequests[request] = d.resources[name]
			container.AllocateFrom[request] = name
		}
	}
	return podOf(container), container
}

// podOf returns a pod with one container.
func podOf(container *types.ContainerInfo) *types.PodInfo {
	pod := types.NewPodInfo()
	pod.Name, pod.NodeName = "pod-1", nodeName
	pod.RunningContainers["main"] = *container.Clone()
	return pod
}

// renamed returns a device of the same kind with another ID.
func (d deviceOf) renamed(id string) deviceOf {
	at := strings.LastIndexByte(d.path, '/')
	other := deviceOf{path: d.path[:at+1] + id, resources: types.ResourceList{}}
	for name, quantity := range d.resources {
		last := name[strings.LastIndexByte(string(name), '/'):]
		other.resources[types.ResourceName(types.DeviceGroupPrefix+"/"+other.path)+last] = quantity
	}
	return other
}

// foreign is a device of another plugin.
var foreign = deviceOf{
	path: "another-vendors-board/0/another-vendors-device/x",
	resources: types.ResourceList{
		"resource/group/another-vendors-board/0/another-vendors-device/x/units": 1,
	},
}

// merged returns why kubecri could not give a container what a plugin answered, or nil.
func merged(answer device.Allocation) error {
	_, _, err := inject.Merge(inject.OS{}, &runtimeapi.ContainerConfig{},
		[]inject.Addition{inject.NewAddition("", answer)})
	return errors.Unwrap(err)
}

// isEmpty reports whether an answer gives a container nothing.
func isEmpty(a device.Allocation) bool {
	return len(a.Devices)+len(a.Mounts)+len(a.Envs)+len(a.Annotations)+len(a.CDIDevices) == 0
}

// sameAnswer reports whether two answers are the same. What is empty and what is nil are.
func sameAnswer(a, b device.Allocation) bool {
	return slices.Equal(a.Devices, b.Devices) && slices.Equal(a.Mounts, b.Mounts) && maps.Equal(a.Envs, b.Envs) &&
		maps.Equal(a.Annotations, b.Annotations) && slices.Equal(a.CDIDevices, b.CDIDevices) &&
		slices.Equal(a.Links, b.Links)
}

// sayAnswer returns an answer in words.
func sayAnswer(a device.Allocation) string {
	if isEmpty(a) {
		return "nothing"
	}
	return brief(fmt.Sprintf("%+v", a))
}

// sameInventory returns how two reports differ, or nil.
func sameInventory(a, b *types.NodeInfo) error {
	for what, lists := range map[string][2]types.ResourceList{
		"Capacity": {a.Capacity, b.Capacity}, "Allocatable": {a.Allocatable, b.Allocatable}, "Used": {a.Used, b.Used},
		"KubeCap": {a.KubeCap, b.KubeCap}, "KubeAlloc": {a.KubeAlloc, b.KubeAlloc},
	} {
		if difference := sameList(lists[0], lists[1]); difference != nil {
			return fmt.Errorf("%s: %w", what, difference)
		}
	}
	if !maps.Equal(a.Scorer, b.Scorer) {
		return fmt.Errorf("the scorers: %v, then %v", a.Scorer, b.Scorer)
	}
	return nil
}

// sameList returns the first difference of two lists, or nil.
func sameList(a, b types.ResourceList) error {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if now, ok := b[name]; !ok || now != a[name] {
			return fmt.Errorf("%s is %d, then %s", brief(string(name)), a[name], quantity(b, name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b)) {
		if _, ok := a[name]; !ok {
			return fmt.Errorf("%s is not there, then %d", brief(string(name)), b[name])
		}
	}
	return nil
}

func quantity(list types.ResourceList, name types.ResourceName) string {
	if q, ok := list[name]; ok {
		return fmt.Sprint(q)
	}
	return "not there"
}
