// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Node is a node's devices.
type Node struct {
	metav1.TypeMeta `json:",inline"`
	Name            string `json:"name"`
	// Unschedulable says that the node is cordoned, and NotReady that its condition Ready is there
	// and not true. New pods get no device of such a node.
	Unschedulable bool `json:"unschedulable,omitempty"`
	NotReady      bool `json:"notReady,omitempty"`
	// Problems say what of the node cannot be read or does not fit together, and what to do about
	// it. A node whose inventory cannot be read has no devices.
	Problems []string `json:"problems,omitempty"`
	// Devices are in the order of their paths.
	Devices []*Device `json:"devices"`
}

// NodeList is several nodes.
type NodeList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []*Node `json:"items"`
}

// NewNodeList returns a list of nodes, which may be nil.
func NewNodeList(nodes []*Node) *NodeList {
	return &NodeList{TypeMeta: TypeMeta("NodeList"), Items: append([]*Node{}, nodes...)} // an empty list, not null
}

// MayHaveDevices reports whether there is anything to show of a node: an inventory, or holders.
func MayHaveDevices(node *corev1.Node) bool {
	return node.Annotations[deviceinfo.Annotation] != "" || node.Annotations[deviceinfo.HoldersAnnotation] != ""
}

// NewNode returns the devices of a node with their holders. pods are those that are bound to the
// node; pods that have ended may be among them. now is when the node was read: what the node has
// published of its use long before does not count.
func NewNode(node *corev1.Node, pods []*corev1.Pod, now time.Time) *Node {
	b := &nodeBuilder{
		node: node,
		Node: &Node{
			TypeMeta: TypeMeta("Node"), Name: node.Name, Devices: []*Device{},
			Unschedulable: node.Spec.Unschedulable, NotReady: notReady(node),
		},
		devices: map[string]*Device{},
		byID:    map[deviceID]*Device{},
	}
	if !b.readInventory() {
		return b.Node
	}
	b.addHolders(pods)
	b.addReasons()
	b.addAttributes()
	b.addTaints()
	b.addUsage(now)
	b.complete()
	return b.Node
}

// notReady reports whether a node says that it is not ready, or has not said anything for long.
func notReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}

// TakesPods reports whether new pods may come to the node.
func (n *Node) TakesPods() bool { return !n.Unschedulable && !n.NotReady }

// Status returns what kubectl get nodes says of the node, as far as it is about new pods:
// Ready,SchedulingDisabled.
func (n *Node) Status() string {
	status := "Ready"
	if n.NotReady {
		status = "NotReady"
	}
	if n.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

// deviceID identifies a device, in all groups.
type deviceID struct{ kind, id string }

// nodeBuilder collects the devices of a node.
type nodeBuilder struct {
	*Node
	node    *corev1.Node
	info    *types.NodeInfo
	devices map[string]*Device   // by path
	byID    map[deviceID]*Device // nil for several of one ID
	alone   map[*Device]bool     // somebody has all there is of a resource

	enforcement deviceinfo.ShareEnforcement
}

func (b *nodeBuilder) problem(format string, args ...any) {
	b.Problems = append(b.Problems, fmt.Sprintf(format, args...))
}

// readInventory reads the node's own annotation, and reports whether it can be read.
func (b *nodeBuilder) readInventory() bool {
	b.info = &types.NodeInfo{}
	if value := b.node.Annotations[deviceinfo.Annotation]; value != "" {
		info, err := deviceinfo.DecodeNode(value)
		if err != nil {
			b.problem("unreadable inventory: %v; kubecri on the node writes it: see its log and /readyz", err)
			return false
		}
		b.info = info
	}
	if _, err := grouptree.CompileDeviceTree(b.info.Allocatable, b.info.Scorer); err != nil {
		b.problem("no devices are scheduled on the node: %v; correct the plugin on the node that reports it", err)
	}
	names := map[types.ResourceName]bool{}
	var plain []string
	for _, list := range []types.ResourceList{b.info.Capacity, b.info.Allocatable} {
		for name := range list {
			if resource.IsGroupResourceName(name) {
				names[name] = true
			} else {
				plain = append(plain, string(name))
			}
		}
	}
	slices.Sort(plain)
	models := modelsOf(b.node, slices.Compact(plain))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		path, err := resource.ParsePath(name)
		if err != nil {
			continue // it is in the error above, or it is not allocatable
		}
		d := b.devices[path.Device()]
		if d == nil {
			d = newDevice(path)
			d.Model = models[d.Kind]
			b.add(d)
		}
		r := Resource{Name: path.Resource(), Allocatable: b.info.Allocatable[name], Outside: b.info.Used[name]}
		r.Capacity, r.Used = max(b.info.Capacity[name], r.Allocatable), r.Outside
		d.Resources = append(d.Resources, r)
	}
	for _, d := range b.Devices {
		d.Health = Unhealthy
		if slices.ContainsFunc(d.Resources, func(r Resource) bool { return r.Allocatable > 0 }) {
			d.Health = Healthy
		}
	}
	return true
}

func (b *nodeBuilder) add(d *Device) {
	b.Devices = append(b.Devices, d)
	b.devices[d.Path] = d
	id := deviceID{d.Kind, d.ID}
	if _, twice := b.byID[id]; twice {
		b.byID[id] = nil
	} else {
		b.byID[id] = d
	}
}

// find returns the device that has a resource which a pod holds. A device that the node does not
// list is added.
func (b *nodeBuilder) find(path resource.Path) *Device {
	if d := b.devices[path.Device()]; d != nil {
		return d
	}
	kind, id := identity(path)
	if d := b.byID[deviceID{kind, id}]; d != nil {
		return d
	}
	d := newDevice(path)
	d.Health = Gone
	b.add(d)
	return d
}

// addHolders adds what pods hold.
func (b *nodeBuilder) addHolders(pods []*corev1.Pod) {
	reported, err := deviceinfo.HoldersOf(b.node)
	if err != nil {
		b.problem("unreadable report of holders: %v; kubecri on the node writes it: see its log", err)
	}
	b.enforcement, err = deviceinfo.DecodeShareEnforcement(b.node.Annotations[deviceinfo.ShareEnforcementAnnotation])
	if err != nil {
		b.problem("it is not known what holds containers to shares: %v; kubecri on the node writes it: see its log",
			err)
	}
	b.alone = map[*Device]bool{}
	known := map[apitypes.UID]bool{}
	for _, pod := range pods {
		if pod.Spec.NodeName != b.node.Name || finished(pod) {
			continue
		}
		known[pod.UID] = true
		held, err := allocationOf(pod, reported[pod.UID])
		if err != nil {
			b.problem("pod %s/%s is not counted: %v", pod.Namespace, pod.Name, err)
		}
		if held != nil {
			b.addHolder(held)
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(reported)) {
		if !known[uid] {
			b.problem("the node reports devices of pod %s/%s (UID %s), which does not run there: kubecri forgets "+
				"them when the pod's containers are gone", reported[uid].Namespace, reported[uid].Name, uid)
		}
	}
}

// addHolder adds what one pod holds.
func (b *nodeBuilder) addHolder(a *allocation) {
	for name, quantity := range a.held {
		path, err := resource.ParsePath(name)
		if err != nil {
			continue // it is on no device
		}
		d := b.find(path)
		i := slices.IndexFunc(d.Resources, func(r Resource) bool { return r.Name == path.Resource() })
		if i < 0 {
			d.Resources = append(d.Resources, Resource{Name: path.Resource()})
			i = len(d.Resources) - 1
		}
		r := &d.Resources[i]
		r.Used = addCapped(r.Used, quantity)
		if quantity >= r.total() {
			b.alone[d] = true
		}
	}
	for _, container := range slices.Sorted(maps.Keys(a.containers)) {
		amounts := map[*Device]map[string]int64{}
		for name, quantity := range a.containers[container] {
			path, err := resource.ParsePath(name)
			if err != nil || quantity <= 0 {
				continue
			}
			d := b.find(path)
			if amounts[d] == nil {
				amounts[d] = map[string]int64{}
			}
			amounts[d][path.Resource()] = quantity
		}
		for d, resources := range amounts {
			d.Holders = append(d.Holders, Holder{
				Namespace: a.pod.Namespace, Pod: a.pod.Name, UID: string(a.pod.UID), Container: container,
				State: a.state(container), Resources: resources, Enforcement: b.enforcementOf(d, resources, a.pod),
			})
		}
	}
}

// enforcementOf returns what holds a container of a pod to what it has of a device.
func (b *nodeBuilder) enforcementOf(d *Device, has map[string]int64, pod *corev1.Pod) deviceinfo.Enforcement {
	for name, quantity := range has {
		if r, _ := d.Quantity(name); !r.Mask() && quantity >= r.total() {
			return deviceinfo.EnforcedByHardware
		}
	}
	return b.enforcement.Of(d.Path, pod.Annotations[deviceinfo.OnShareExceededAnnotation])
}

// addReasons reads why devices are unhealthy. A reason for a device that is healthy is older than
// the inventory, or younger.
func (b *nodeBuilder) addReasons() {
	list, err := deviceinfo.DecodeUnhealthy(b.node.Annotations[deviceinfo.UnhealthyAnnotation])
	if err != nil {
		b.problem("it is not known why devices are unhealthy: %v; kubecri on the node writes it: see its log", err)
	}
	for _, u := range list {
		if d := b.devices[u.Device]; d != nil && d.Health != Healthy {
			d.Reason, d.Message, d.UnhealthySince = u.Reason, u.Message, &metav1.Time{Time: u.Since}
		}
	}
}

// addAttributes reads what describes devices. The product name is more exact than a label of the
// node, which is one for all devices of a kind.
func (b *nodeBuilder) addAttributes() {
	attributes, err := deviceinfo.DecodeAttributes(b.node.Annotations[deviceinfo.AttributesAnnotation])
	if err != nil {
		b.problem("the attributes of devices are not known: %v; kubecri on the node writes them: see its log", err)
	}
	for path, deviceAttributes := range attributes {
		d := b.devices[path]
		if d == nil {
			continue // it has left the inventory, or is about to come
		}
		d.Attributes = deviceAttributes
		if name := deviceAttributes["productName"]; name.Kind() == device.StringAttribute {
			d.Model = name.String()
		}
	}
}

// addUsage reads how much of the devices is really used. What is old does not count, nor what a
// node said that is not ready: it cannot say anything else.
func (b *nodeBuilder) addUsage(now time.Time) {
	usage, known, err := deviceinfo.DecodeUsage(b.node.Annotations[deviceinfo.UsageAnnotation], now)
	if err != nil {
		b.problem("it is not known how devices are used: %v; kubecri on the node writes it: see its log", err)
	}
	if !known || b.NotReady {
		return
	}
	for path, deviceUsage := range usage.Devices {
		d := b.devices[path]
		total, totalKnown := deviceUsage.MemoryTotal.Value()
		used, usedKnown := deviceUsage.MemoryUsed.Value()
		if d == nil || !totalKnown || !usedKnown {
			continue
		}
		d.Measured = &Measured{
			Time: metav1.Time{Time: usage.Time}, MemoryTotal: total, MemoryUsed: used,
			MemoryUnowned: deviceUsage.Unowned,
		}
		for _, container := range deviceUsage.Containers {
			for i := range d.Holders {
				if h := &d.Holders[i]; h.UID == container.PodUID && h.Container == container.Container {
					h.MemoryUsed = container.MemoryUsed
				}
			}
		}
	}
}

// ForgetMeasured removes how the devices are really used, which changes all the time.
func (n *Node) ForgetMeasured() {
	for _, d := range n.Devices {
		d.Measured = nil
		for i := range d.Holders {
			d.Holders[i].MemoryUsed = device.Reading{}
		}
	}
}

// addTaints reads the taints of devices, which administrators wrote.
func (b *nodeBuilder) addTaints() {
	list, err := deviceinfo.DecodeDeviceTaints(b.node.Annotations[deviceinfo.DeviceTaintsAnnotation])
	if err != nil {
		b.problem("pods get none of the node's devices: %v; kubectl device taint writes it", err)
	}
	for _, d := range b.Devices {
		for _, source := range deviceinfo.TaintsOf(list, d.Path) {
			taint := Taint{Key: source.Key, Value: source.Value, Effect: source.Effect}
			if !source.TimeAdded.IsZero() {
				taint.TimeAdded = &metav1.Time{Time: source.TimeAdded}
			}
			d.Taints = append(d.Taints, taint)
		}
	}
}

// complete fills in what follows from the rest, and brings everything into its order.
func (b *nodeBuilder) complete() {
	for _, d := range b.Devices {
		d.Use = Free
		for _, r := range d.Resources {
			if r.Mask() || r.Used == 0 {
				continue
			}
			if d.Use == Free {
				d.Use = Shared
			}
			if b.alone[d] || r.Outside > 0 && r.Outside >= r.total() {
				d.Use = Whole
			}
		}
		if d.Use == Whole {
			for i := range d.Resources {
				if r := &d.Resources[i]; !r.Mask() {
					r.Used = max(r.Used, r.total())
				}
			}
		}
		slices.SortFunc(d.Resources, func(a, b Resource) int { return cmp.Compare(a.Name, b.Name) })
		slices.SortFunc(d.Holders, func(a, b Holder) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod),
				cmp.Compare(a.UID, b.UID), cmp.Compare(a.Container, b.Container))
		})
	}
	slices.SortFunc(b.Devices, func(a, b *Device) int { return comparePaths(a.Path, b.Path) })
}
