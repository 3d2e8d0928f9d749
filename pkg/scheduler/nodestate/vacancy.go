// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// errHoldsNothing is why a container of a pod cannot be given other devices.
var errHoldsNothing = errors.New("the pod holds no devices by an allocation of the scheduler")

// Vacancy is what all pods leave of a node's devices to one container of a pod, as if this one held
// nothing. It is immutable.
type Vacancy struct {
	// Held is the pod's allocation, by the node's present names. The caller does not change it.
	Held *sdk.PodInfo

	cache   *Cache
	devices *allocation.Inventory
	others  map[types.UID]holder
}

// Vacancy returns what the pods that are bound to the node, and all reservations, leave to the
// container of the pod, which is one of them. What was reserved for that very container before does
// not count. list returns the bound pods as they are then: what is not reserved any more, they
// show.
func (c *Cache) Vacancy(
	ctx context.Context, source *v1.Node, list func() ([]*v1.Pod, error), pod *v1.Pod, container string,
) (*Vacancy, error) {
	n, inv, err := c.current(ctx, source)
	if err != nil {
		return nil, err
	}
	mine, err := inv.devicesFor(ctx, c.schedulers, pod)
	if err != nil {
		return nil, err
	}
	others, last := map[types.UID]holder{}, n.last.Load()
	for uid, r := range n.reservations().pods {
		others[uid] = r.asHolder()
	}
	delete(others, replacementUID(pod.UID))
	delete(others, pod.UID)
	pods, err := list() // after the reservations: one ends when its pod is seen bound
	if err != nil {
		return nil, err
	}
	for _, other := range pods {
		delete(others, other.UID)
		if held, ok := c.heldBy(other, inv, last); ok && other.UID != pod.UID {
			others[other.UID] = held
		}
	}
	own, ok := c.heldBy(pod, inv, last)
	if !ok || own.reported != nil {
		return nil, errHoldsNothing
	}
	held := own.ByNamesOf(mine).Pod
	rest := *held
	rest.RunningContainers = maps.Clone(rest.RunningContainers)
	delete(rest.RunningContainers, container)
	others[pod.UID] = holder{Holder: allocation.NewHolder(string(pod.UID), &rest, request.Containers(pod))}
	return &Vacancy{Held: held, cache: c, devices: mine, others: others}, nil
}

// Node returns the node as the container finds it, without the devices of these paths, of which
// nothing is left to it.
func (v *Vacancy) Node(ctx context.Context, without map[string]bool) (*allocation.Node, error) {
	others := v.others
	if len(without) > 0 {
		all := sdk.ContainerInfo{DevRequests: sdk.ResourceList{}, AllocateFrom: sdk.ResourceLocation{}}
		for device := range v.each() {
			if without[device.path] {
				all.DevRequests[device.name], all.AllocateFrom[device.name] = device.quantity, device.name
			}
		}
		info := &sdk.PodInfo{RunningContainers: map[string]sdk.ContainerInfo{"": all}}
		others = maps.Clone(others)
		others[hidden] = holder{Holder: allocation.NewHolder(string(hidden), info, nil)}
	}
	return v.cache.schedulers.Node(ctx, v.devices, inOrder(others))
}

// hidden is the UID of who holds devices that are not to be chosen.
const hidden = types.UID("failover/hidden")

// Devices returns the paths of the node's devices that may be allocated, sorted.
func (v *Vacancy) Devices() []string {
	paths := map[string]bool{}
	for device := range v.each() {
		paths[device.path] = true
	}
	return slices.Sorted(maps.Keys(paths))
}

// allocatable is a resource of a device that may be allocated.
type allocatable struct {
	path     string
	name     sdk.ResourceName
	quantity int64
}

func (v *Vacancy) each() func(yield func(allocatable) bool) {
	return func(yield func(allocatable) bool) {
		for _, at := range v.cache.schedulers.Estimate(v.devices, nil).Resources() {
			path, err := resource.ParsePath(at.Name)
			if err != nil || at.Allocatable <= 0 || at.Allocatable >= math.MaxInt64/2 ||
				resource.IsEnumResource(sdk.ResourceName(path.Resource())) {
				continue
			}
			if !yield(allocatable{path.Device(), at.Name, at.Allocatable}) {
				return
			}
		}
	}
}

// replacementUID is the UID under which devices are reserved for a pod that holds others already.
func replacementUID(uid types.UID) types.UID { return replacementPrefix + uid }

const replacementPrefix = "failover/"

func isReplacement(uid types.UID) bool { return strings.HasPrefix(string(uid), replacementPrefix) }

// ReserveMore keeps devices for a bound pod in addition to those that it holds, until ReleaseMore.
func (c *Cache) ReserveMore(nodeName string, pod *v1.Pod, more *sdk.PodInfo) {
	uid := replacementUID(pod.UID)
	devices := allocation.NewHolder(string(uid), more, nil)
	c.change(nodeName, uid, func(reservation) reservation {
		return reservation{devices: devices, unresolved: 1}
	})
}

// ReleaseMore ends what ReserveMore began. It may be called any number of times.
func (c *Cache) ReleaseMore(nodeName string, uid types.UID) {
	c.change(nodeName, replacementUID(uid), func(reservation) reservation { return reservation{} })
}
