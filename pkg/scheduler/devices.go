// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/scheduler/devicepage"
	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// devices is what the page of devices shows: the nodes and pods of the informers, which every scheduler has, the one that
// leads and those that stand by, and the reservations, which only the one that leads has.
type devices struct{ *shared }

var _ devicepage.Source = devices{}

// Nodes returns the devices of all nodes, or of the one of that name.
func (d devices) Nodes(ctx context.Context, name string) ([]devicepage.Node, error) {
	nodes, err := d.sortedNodes(name)
	if err != nil {
		return nil, err
	}
	names := d.podNames()
	shown := make([]devicepage.Node, 0, len(nodes))
	for _, node := range nodes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		at := devicepage.Node{Name: node.Name}
		if sight, err := d.look(ctx, node); err != nil {
			at.Problem = err.Error()
		} else {
			at.Devices = show(sight, names)
		}
		shown = append(shown, at)
	}
	return shown, nil
}

// Pod returns the verdict of each node for a pod that waits.
func (d devices) Pod(ctx context.Context, namespace, name string) (*devicepage.Pod, error) {
	object, found, err := d.pods.GetByKey(namespace + "/" + name)
	if err != nil || !found {
		return nil, err
	}
	pod := object.(*v1.Pod)
	shown := &devicepage.Pod{Name: namespace + "/" + name, Node: pod.Spec.NodeName}
	if shown.Node != "" {
		return shown, nil
	}
	request, err := d.nodes.Request(pod)
	switch {
	case err != nil:
		shown.Problem = err.Error()
		return shown, nil
	case request == nil:
		shown.Problem = "the pod asks for no device"
		return shown, nil
	}
	nodes, err := d.sortedNodes("")
	if err != nil {
		return nil, err
	}
	for _, node := range nodes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		shown.Verdicts = append(shown.Verdicts, d.verdict(ctx, node, request))
	}
	return shown, nil
}

// verdict says whether a request fits a node.
func (d devices) verdict(ctx context.Context, node *v1.Node, request *dispatch.Request) devicepage.Verdict {
	shown := devicepage.Verdict{Node: node.Name}
	sight, err := d.look(ctx, node)
	if err != nil {
		shown.Reason = err.Error()
		return shown
	}
	verdict, err := d.schedulers.Fit(ctx, sight.Devices, request)
	switch {
	case err != nil:
		shown.Reason = err.Error()
	case verdict.Fits:
		shown.Fits, shown.Score = true, verdict.Score
	default:
		shown.Preemptible = !verdict.Never
		shown.Reason = strings.Join(verdict.Reasons, ", ")
		if verdict.Lack != nil {
			shown.Reason = strings.TrimPrefix(verdict.Lack.Text(d.schedulers.Words()), "have ")
		}
	}
	return shown
}

func (d devices) look(ctx context.Context, node *v1.Node) (*nodestate.Sight, error) {
	pods, err := d.podsOn(node.Name)
	if err != nil {
		return nil, err
	}
	return d.nodes.LookCloser(ctx, node, pods)
}

// sortedNodes returns all nodes by name, or the one of that name, or none.
func (d devices) sortedNodes(name string) ([]*v1.Node, error) {
	nodes, err := d.nodeLister.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	nodes = slices.DeleteFunc(nodes, func(node *v1.Node) bool { return name != "" && node.Name != name })
	slices.SortFunc(nodes, func(a, b *v1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes, nil
}

// podNames returns namespace and name of all pods by UID.
func (d devices) podNames() map[types.UID]string {
	names := map[types.UID]string{}
	for _, object := range d.pods.List() {
		pod := object.(*v1.Pod)
		names[pod.UID] = pod.Namespace + "/" + pod.Name
	}
	return names
}

// show turns the sight of a node into devices with their holders.
func show(sight *nodestate.Sight, names map[types.UID]string) []devicepage.Device {
	var shown []devicepage.Device
	places := map[string]int{} // of a group, what stands inside it may come between its own resources
	for _, at := range sight.Devices.Resources() {
		device, resource := split(at.Name)
		place, ok := places[device]
		if !ok {
			place = len(shown)
			places[device] = place
			shown = append(shown, devicepage.Device{Name: device})
		}
		r := devicepage.Resource{Name: resource, Allocatable: at.Allocatable, Used: at.Used}
		for _, holder := range sight.Holders {
			if quantity := holder.Holds(at.Name); quantity > 0 {
				uid := types.UID(holder.UID)
				r.Holders = append(r.Holders, devicepage.Holder{
					Pod: cmp.Or(names[uid], holder.Pod.Name), UID: holder.UID, Quantity: quantity, Reserved: !sight.Bound[uid],
				})
			}
		}
		shown[place].Resources = append(shown[place].Resources, r)
	}
	return shown
}

// split takes the name of a device resource apart: the path of the device, and its resource.
func split(name sdk.ResourceName) (device, resource string) {
	path := strings.TrimPrefix(string(name), sdk.DeviceGroupPrefix+"/")
	if cut := strings.LastIndexByte(path, '/'); cut >= 0 {
		return path[:cut], path[cut+1:]
	}
	return "", path
}
