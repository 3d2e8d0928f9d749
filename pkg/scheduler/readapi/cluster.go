// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Cluster is the source that reads the nodes and pods of the informers, which leader and standbys
// have, and the reservations, which only the leader has.
type Cluster struct {
	Schedulers *allocation.Set
	States     *nodestate.Cache
	NodeLister corelisters.NodeLister
	PodLister  corelisters.PodLister
	// Bound knows the pods of nodes.
	Bound Bound
}

// Bound knows the pods of nodes. *frameworkplugin.Shared implements it.
type Bound interface {
	// PodsOn returns the pods that are bound to a node.
	PodsOn(nodeName string) ([]*v1.Pod, error)
}

var _ Source = (*Cluster)(nil)

// Nodes calls yield with the devices of nodes: see Source.
func (c *Cluster) Nodes(ctx context.Context, name, start string, yield func(schedulerapi.Node) bool) error {
	return c.eachNode(ctx, name, start, func(node *v1.Node) bool {
		shown := schedulerapi.Node{Name: node.Name}
		view, pods, err := c.view(ctx, node)
		if err != nil {
			shown.Problem = err.Error()
			return yield(shown)
		}
		shown.Devices = devices(view, node, c.holders(view, pods))
		addTaints(shown.Devices, node)
		addAttributes(shown.Devices, node)
		return yield(shown)
	})
}

// holders returns the pods that hold devices of a node, by UID. pods has the bound pods only.
func (c *Cluster) holders(view *nodestate.View, pods []*v1.Pod) map[types.UID]*v1.Pod {
	found := make(map[types.UID]*v1.Pod, len(pods))
	for _, pod := range pods {
		found[pod.UID] = pod
	}
	if len(view.Holders) == len(view.Bound) {
		return found
	}
	if all, err := c.PodLister.List(labels.Everything()); err == nil {
		for _, pod := range all {
			found[pod.UID] = pod
		}
	}
	return found
}

// Pods calls yield with pods: see Source.
func (c *Cluster) Pods(ctx context.Context, query PodQuery, yield func(schedulerapi.Pod) bool) error {
	pods, err := c.listPods(query)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if err := ctx.Err(); err != nil {
			return err
		}
		shown, err := c.pod(ctx, pod, query.Name != "")
		if err != nil {
			return err
		}
		if shown != nil && (query.Node == "" || shown.Node == query.Node) && !yield(*shown) {
			return nil
		}
	}
	return nil
}

// listPods returns the pods that the query may select, in order. It ignores the node of the query,
// as pods with a reservation on a node are not bound to it yet.
func (c *Cluster) listPods(query PodQuery) ([]*v1.Pod, error) {
	pods, err := c.PodLister.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	pods = slices.DeleteFunc(slices.Clone(pods), func(pod *v1.Pod) bool {
		return query.Namespace != "" && pod.Namespace != query.Namespace ||
			query.Name != "" && pod.Name != query.Name || key(pod.Namespace, pod.Name) <= query.After
	})
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Compare(key(a.Namespace, a.Name), key(b.Namespace, b.Name))
	})
	return pods, nil
}

// pod returns the state of a pod, with the verdicts of all nodes if it waits and verdicts is true.
// It returns nil for a pod that neither holds devices nor waits for some.
func (c *Cluster) pod(ctx context.Context, pod *v1.Pod, verdicts bool) (*schedulerapi.Pod, error) {
	shown := &schedulerapi.Pod{
		Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), SchedulerName: pod.Spec.SchedulerName,
		Node: pod.Spec.NodeName, State: schedulerapi.Bound, Since: scheduledAt(pod),
	}
	if pod.Spec.NodeName != "" {
		held := c.States.Held(pod)
		if held == nil {
			held = c.States.ReservedAllocation(pod.Spec.NodeName, pod.UID)
		}
		shown.Allocations = allocations(held)
		if len(shown.Allocations) == 0 {
			return nil, nil
		}
		return shown, nil
	}
	shown.Since = pod.CreationTimestamp.Time
	if node := c.States.ReservedOn(pod.UID); node != "" {
		shown.State, shown.Node = schedulerapi.Reserved, node
		shown.Allocations = allocations(c.States.ReservedAllocation(node, pod.UID))
		return shown, nil
	}
	shown.State = schedulerapi.Waiting
	request, err := c.States.Requests.Read(pod)
	switch {
	case err != nil:
		shown.Reason = err.Error()
		return shown, nil
	case request == nil:
		return nil, nil
	}
	shown.Reason = waitsFor(pod)
	if !verdicts {
		return shown, nil
	}
	err = c.eachNode(ctx, "", "", func(node *v1.Node) bool {
		shown.Verdicts = append(shown.Verdicts, c.verdict(ctx, node, pod, request))
		return true
	})
	return shown, err
}

// scheduledAt returns when the pod was bound.
func scheduledAt(pod *v1.Pod) time.Time {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// waitsFor returns the scheduler's message about its last attempt.
func waitsFor(pod *v1.Pod) string {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

// allocations returns the devices of containers, by container and device. allocation may be nil.
func allocations(allocation *sdk.PodInfo) []schedulerapi.Allocation {
	if allocation == nil {
		return nil
	}
	type place struct{ container, device string }
	found := map[place]map[string]int64{}
	for name, container := range allocation.Containers() {
		for request, from := range container.AllocateFrom {
			path, err := resource.ParsePath(from)
			if err != nil {
				continue // it belongs to no device
			}
			slot := place{name, path.Device()}
			if found[slot] == nil {
				found[slot] = map[string]int64{}
			}
			found[slot][path.Resource()] += container.DevRequests[request]
		}
	}
	shown := make([]schedulerapi.Allocation, 0, len(found))
	for slot, resources := range found {
		shown = append(shown, schedulerapi.Allocation{
			Container: slot.container, Device: slot.device, Resources: resources,
		})
	}
	slices.SortFunc(shown, func(a, b schedulerapi.Allocation) int {
		return cmp.Or(cmp.Compare(a.Container, b.Container), cmp.Compare(a.Device, b.Device))
	})
	return shown
}

// verdict reports whether a request fits a node.
func (c *Cluster) verdict(
	ctx context.Context, node *v1.Node, pod *v1.Pod, request *request.Request,
) schedulerapi.Verdict {
	view, _, err := c.view(ctx, node)
	if err != nil {
		return schedulerapi.Verdict{Node: node.Name, Reason: err.Error()}
	}
	devices, err := c.States.DevicesFor(ctx, view, pod)
	var found allocation.Verdict
	if err == nil {
		found, err = c.Schedulers.Fit(ctx, devices, request)
	}
	switch {
	case err != nil:
		return schedulerapi.Verdict{Node: node.Name, Reason: err.Error()}
	case found.NoDevices:
		return schedulerapi.Verdict{Node: node.Name, Fits: true, Kubelet: true}
	case found.Fits:
		return schedulerapi.Verdict{Node: node.Name, Fits: true, Score: found.Score}
	}
	reason := strings.Join(found.Reasons, ", ")
	if found.Shortage != nil {
		reason = strings.TrimPrefix(found.Shortage.Text(c.Schedulers.DisplayNames()), "have ")
	}
	if verdict, err := c.Schedulers.Fit(ctx, view.Devices, request); err == nil && verdict.Fits {
		if text := nodestate.TaintsText(c.States.Untolerated(node, pod), c.Schedulers.DisplayNames()); text != "" {
			reason += ", " + strings.TrimPrefix(text, "have ")
		}
	}
	if text := c.States.UnhealthyText(ctx, node, request); text != "" {
		reason += ", " + strings.TrimPrefix(text, "have ")
	}
	return schedulerapi.Verdict{Node: node.Name, Preemptible: !found.Unresolvable, Reason: reason}
}

// view returns the current devices of a node, and the pods that are bound to it.
func (c *Cluster) view(ctx context.Context, node *v1.Node) (*nodestate.View, []*v1.Pod, error) {
	pods, err := c.Bound.PodsOn(node.Name)
	if err != nil {
		return nil, nil, err
	}
	view, err := c.States.View(ctx, node, pods)
	return view, pods, err
}

// eachNode calls f with the nodes after start in the order of their names, or with the one called
// name if it exists, until f returns false or ctx ends.
func (c *Cluster) eachNode(ctx context.Context, name, start string, f func(*v1.Node) bool) error {
	nodes, err := c.NodeLister.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(node *v1.Node) bool {
		return name != "" && node.Name != name || node.Name <= start
	})
	slices.SortFunc(nodes, func(a, b *v1.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, node := range nodes {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !f(node) {
			return nil
		}
	}
	return nil
}

// devices returns the devices of a node with their holders, by path. pods has these.
func devices(view *nodestate.View, node *v1.Node, pods map[types.UID]*v1.Pod) []schedulerapi.Device {
	// What cannot be read counts as nothing, as it does where pods are placed.
	enforcement, _ := deviceinfo.DecodeShareEnforcement(node.Annotations[deviceinfo.ShareEnforcementAnnotation])
	found := map[string]*schedulerapi.Device{}
	healthy := map[deviceID]bool{}
	for _, entry := range view.Devices.Resources() {
		path, _ := resource.ParsePath(entry.Name) // of a device tree, so it is one
		device := deviceAt(found, path)
		if resource.IsEnumResource(sdk.ResourceName(path.Resource())) {
			if device.Attributes == nil {
				device.Attributes = map[string]int64{}
			}
			device.Attributes[path.Resource()] = entry.Allocatable
		} else {
			device.Resources = append(device.Resources, schedulerapi.Resource{
				Name: path.Resource(), Allocatable: entry.Allocatable, Used: entry.Used,
				Holders: holders(view, path, entry.Allocatable, enforcement, pods),
			})
		}
		if entry.Allocatable > 0 {
			device.Health = schedulerapi.Healthy
			healthy[deviceID{device.Kind, device.ID}] = true
		}
	}
	// A device in the node's capacity that no pod may get is unhealthy. A plugin may have put a
	// device into more groups than the node has it in.
	for _, path := range view.Devices.Capacity() {
		if kind, id := identify(path); !healthy[deviceID{kind, id}] {
			device, name := deviceAt(found, path), path.Resource()
			known := slices.ContainsFunc(device.Resources, func(r schedulerapi.Resource) bool { return r.Name == name })
			if !known && !resource.IsEnumResource(sdk.ResourceName(name)) {
				device.Resources = append(device.Resources, schedulerapi.Resource{Name: name})
			}
		}
	}
	shown := make([]schedulerapi.Device, 0, len(found))
	for _, path := range slices.Sorted(maps.Keys(found)) {
		shown = append(shown, *found[path])
	}
	return shown
}

// deviceID identifies a device independently of its groups.
type deviceID struct{ kind, id string }

// deviceAt returns the device that has a resource, unhealthy if it is new.
func deviceAt(found map[string]*schedulerapi.Device, path resource.Path) *schedulerapi.Device {
	device := found[path.Device()]
	if device == nil {
		device = &schedulerapi.Device{Path: path.Device(), Health: schedulerapi.Unhealthy}
		device.Kind, device.ID = identify(path)
		found[path.Device()] = device
	}
	return device
}

// identify returns kind and ID of the device that has a resource.
func identify(path resource.Path) (kind, id string) {
	if device, ok := kubeletdevice.Parse(path.Name()); ok {
		return string(device.Resource), device.ID
	}
	return cmp.Or(path.DeviceLevel(), "node"), path.DeviceID()
}

// addTaints adds the taints that a node's devices have.
func addTaints(shown []schedulerapi.Device, node *v1.Node) {
	// A node with unreadable taints has no view.
	taints, _ := deviceinfo.DecodeDeviceTaints(node.Annotations[deviceinfo.DeviceTaintsAnnotation])
	for i := range shown {
		for _, t := range deviceinfo.TaintsOf(taints, shown[i].Path) {
			shown[i].Taints = append(shown[i].Taints, schedulerapi.Taint{
				Key: t.Key, Value: t.Value, Effect: string(t.Effect), TimeAdded: t.TimeAdded,
			})
		}
	}
}

// addAttributes adds what describes a node's devices. Attributes that cannot be read are no problem
// of the node: only pods that choose GPUs by their models depend on them.
func addAttributes(shown []schedulerapi.Device, node *v1.Node) {
	attributes, _ := deviceinfo.DecodeAttributes(node.Annotations[deviceinfo.AttributesAnnotation])
	for i := range shown {
		for name, value := range attributes[shown[i].Path] {
			if shown[i].DeviceAttributes == nil {
				shown[i].DeviceAttributes = map[string]any{}
			}
			shown[i].DeviceAttributes[name] = value
		}
	}
}

// shared is the resource of a device of which pods have shares.
const shared = "memory"

// holders returns the holders of a resource, of which so much is allocatable.
func holders(
	view *nodestate.View, of resource.Path, allocatable int64, enforcement deviceinfo.ShareEnforcement,
	pods map[types.UID]*v1.Pod,
) (shown []schedulerapi.Holder) {
	name := of.Name()
	for _, holder := range view.Holders {
		if quantity := holder.Holds(name); quantity > 0 {
			uid := types.UID(holder.UID)
			h := schedulerapi.Holder{
				Pod: holder.Pod.Name, UID: holder.UID, Quantity: quantity, Reserved: !view.Bound[uid],
			}
			onExceeded := ""
			if pod := pods[uid]; pod != nil {
				h.Namespace, onExceeded = pod.Namespace, pod.Annotations[deviceinfo.OnShareExceededAnnotation]
			}
			// Of an unhealthy device nothing is allocatable, and how much it has is not known here.
			h.Enforcement = string(deviceinfo.EnforcedByHardware)
			if quantity < allocatable || allocatable == 0 && of.Resource() == shared {
				h.Enforcement = string(enforcement.Of(of.Device(), onExceeded))
			}
			shown = append(shown, h)
		}
	}
	return shown
}
