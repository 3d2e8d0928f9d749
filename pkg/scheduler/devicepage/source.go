// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicepage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
)

// Cluster is the source that shows the nodes and pods of the informers, which leader and standbys
// have, and the reservations, which only the leader has.
type Cluster struct {
	Schedulers *dispatch.Set
	States     *nodestate.Cache
	NodeLister corelisters.NodeLister
	PodLister  corelisters.PodLister
	// PodsOn returns the pods that are bound to a node.
	PodsOn func(nodeName string) ([]*v1.Pod, error)
}

var _ Source = (*Cluster)(nil)

// Nodes returns the devices of all nodes, or of the one of that name.
func (c *Cluster) Nodes(ctx context.Context, name string) ([]Node, error) {
	pods, err := c.PodLister.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	names := make(map[types.UID]string, len(pods))
	for _, pod := range pods {
		names[pod.UID] = pod.Namespace + "/" + pod.Name
	}
	var shown []Node
	err = c.eachNode(ctx, name, func(node *v1.Node) {
		if view, err := c.view(ctx, node); err != nil {
			shown = append(shown, Node{Name: node.Name, Problem: err.Error()})
		} else {
			shown = append(shown, Node{Name: node.Name, Devices: devices(view, names)})
		}
	})
	return shown, err
}

// Pod returns the verdict of each node for a pending pod.
func (c *Cluster) Pod(ctx context.Context, namespace, name string) (*Pod, error) {
	pod, err := c.PodLister.Pods(namespace).Get(name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	shown := &Pod{Name: namespace + "/" + name, Node: pod.Spec.NodeName}
	if shown.Node != "" {
		return shown, nil
	}
	request, err := c.States.Request(pod)
	switch {
	case err != nil:
		shown.Problem = err.Error()
		return shown, nil
	case request == nil:
		shown.Problem = "the pod asks for no device"
		return shown, nil
	}
	err = c.eachNode(ctx, "", func(node *v1.Node) {
		shown.Verdicts = append(shown.Verdicts, c.verdict(ctx, node, request))
	})
	return shown, err
}

// verdict reports whether a request fits a node.
func (c *Cluster) verdict(ctx context.Context, node *v1.Node, request *dispatch.Request) Verdict {
	view, err := c.view(ctx, node)
	if err != nil {
		return Verdict{Node: node.Name, Reason: err.Error()}
	}
	found, err := c.Schedulers.Fit(ctx, view.Devices, request)
	switch {
	case err != nil:
		return Verdict{Node: node.Name, Reason: err.Error()}
	case found.Unconcerned:
		return Verdict{Node: node.Name, Fits: true, Kubelet: true}
	case found.Fits:
		return Verdict{Node: node.Name, Fits: true, Score: found.Score}
	}
	reason := strings.Join(found.Reasons, ", ")
	if found.Shortage != nil {
		reason = strings.TrimPrefix(found.Shortage.Text(c.Schedulers.Words()), "have ")
	}
	return Verdict{Node: node.Name, Preemptible: !found.Never, Reason: reason}
}

func (c *Cluster) view(ctx context.Context, node *v1.Node) (*nodestate.View, error) {
	pods, err := c.PodsOn(node.Name)
	if err != nil {
		return nil, err
	}
	return c.States.View(ctx, node, pods)
}

// eachNode calls f with all nodes by name, or with the one of that name if it exists, until ctx
// ends.
func (c *Cluster) eachNode(ctx context.Context, name string, f func(*v1.Node)) error {
	nodes, err := c.NodeLister.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	slices.SortFunc(nodes, func(a, b *v1.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, node := range nodes {
		if err := ctx.Err(); err != nil {
			return err
		}
		if name == "" || node.Name == name {
			f(node)
		}
	}
	return nil
}

// devices returns the devices of a node with their holders. names has namespace and name of pods.
func devices(view *nodestate.View, names map[types.UID]string) []Device {
	var shown []Device
	index := map[string]int{} // of devices: resources of a group and of what is inside it are not in one stretch
	for _, at := range view.Devices.Resources() {
		path, _ := resource.ParsePath(at.Name) // of a device tree, so it is one
		device := path.Device()
		i, ok := index[device]
		if !ok {
			i = len(shown)
			index[device] = i
			shown = append(shown, Device{Name: device})
		}
		shownResource := Resource{Name: path.Resource(), Allocatable: at.Allocatable, Used: at.Used}
		for _, holder := range view.Holders {
			if quantity := holder.Holds(at.Name); quantity > 0 {
				uid := types.UID(holder.UID)
				shownResource.Holders = append(shownResource.Holders, Holder{
					Pod: cmp.Or(names[uid], holder.Pod.Name), UID: holder.UID,
					Quantity: quantity, Reserved: !view.Bound[uid],
				})
			}
		}
		shown[i].Resources = append(shown[i].Resources, shownResource)
	}
	return shown
}
