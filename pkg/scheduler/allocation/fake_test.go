// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// reasons are why a pod does not fit.
type reasons = []devicescheduler.PredicateFailureReason

// fake is a plugin that fits everything, scores 0, and does what its functions say.
type fake struct {
	name   string
	groups bool

	add      func(*types.NodeInfo)
	remove   func(string)
	fit      func(*types.NodeInfo, *types.PodInfo) (bool, reasons, float64)
	allocate func(*types.NodeInfo, *types.PodInfo) error
	take     func(*types.NodeInfo, *types.PodInfo) error
}

func (f *fake) AddNode(_ string, node *types.NodeInfo) {
	if f.add != nil {
		f.add(node)
	}
}

func (f *fake) RemoveNode(name string) {
	if f.remove != nil {
		f.remove(name)
	}
}

func (f *fake) PodFitsDevice(node *types.NodeInfo, pod *types.PodInfo, _ bool) (bool, reasons, float64) {
	if f.fit != nil {
		return f.fit(node, pod)
	}
	return true, nil, 0
}

func (f *fake) PodAllocate(node *types.NodeInfo, pod *types.PodInfo) error {
	if f.allocate != nil {
		return f.allocate(node, pod)
	}
	return nil
}

func (f *fake) TakePodResources(node *types.NodeInfo, pod *types.PodInfo) error {
	if f.take != nil {
		return f.take(node, pod)
	}
	return nil
}

func (*fake) ReturnPodResources(*types.NodeInfo, *types.PodInfo) error { return nil }
func (f *fake) GetName() string                                        { return f.name }
func (f *fake) UsingGroupScheduler() bool                              { return f.groups }

// concurrent is a fake that is safe for concurrent use.
type concurrent struct{ *fake }

func (concurrent) ConcurrentSafe() bool { return true }

// gpus returns a plugin that leaves GPUs to the group scheduler: nvidia.com/gpu of each container
// becomes as many cards.
func gpus() *fake {
	translate := func(pod *types.PodInfo) {
		for _, containers := range []map[string]types.ContainerInfo{pod.RunningContainers, pod.InitContainers} {
			for name, container := range containers {
				for i := range container.KubeRequests["nvidia.com/gpu"] {
					if container.DevRequests == nil {
						container.DevRequests = types.ResourceList{}
					}
					resource.AddGroupResource(container.DevRequests, fmt.Sprintf("gpu/%d/cards", i), 1)
				}
				containers[name] = container
			}
		}
	}
	return &fake{
		name: "gpus", groups: true,
		fit: func(_ *types.NodeInfo, pod *types.PodInfo) (bool, reasons, float64) {
			translate(pod)
			return true, nil, 0
		},
		allocate: func(_ *types.NodeInfo, pod *types.PodInfo) error { translate(pod); return nil },
	}
}

// set returns the set of plugins, named f0, f1, … by file.
func set(t *testing.T, clk clock.WithTicker, plugins ...devicescheduler.DeviceScheduler) *Set {
	t.Helper()
	named := make([]Named, len(plugins))
	for i, plugin := range plugins {
		named[i] = Named{File: fmt.Sprintf("f%d", i), Plugin: plugin}
	}
	return newSet(klog.Background(), clk, unrecorded{}, defaultSizes, named...)
}

// listing returns a node whose inventory lists these extended resources as devices.
func listing(name string, resources ...types.ResourceName) *types.NodeInfo {
	info := types.NewNodeInfoWithName(name)
	for _, listed := range resources {
		info.Capacity[listed] = 1
	}
	return info
}

// NodeOf returns the state of a node of which this is published, also for tests of the package from
// outside.
func NodeOf(t *testing.T, s *Set, info *types.NodeInfo) *Node {
	t.Helper()
	inventory, err := s.AddNode(t.Context(), info)
	if err != nil {
		t.Fatal(err)
	}
	node, err := s.Node(t.Context(), inventory, nil)
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// nodeWith returns the state of a node with this many free GPUs.
func nodeWith(t *testing.T, s *Set, count int) *Node {
	t.Helper()
	info := listing("n", "nvidia.com/gpu", "x/a", "x/b", "x/c")
	for i := range count {
		resource.AddGroupResource(info.Allocatable, fmt.Sprintf("gpu/GPU-%d/cards", i), 1)
	}
	return NodeOf(t, s, info)
}

// requestFor returns the request of a pod whose one container requests this many GPUs.
func requestFor(count int64) *request.Request {
	return &request.Request{
		Pod: &types.PodInfo{Name: "p", RunningContainers: map[string]types.ContainerInfo{
			"main": {KubeRequests: types.ResourceList{"nvidia.com/gpu": count}},
		}},
		Containers: []grouptree.Container{{Name: "main"}},
	}
}

// serve is the fit of a plugin that serves every container by itself.
func serve(score float64) func(*types.NodeInfo, *types.PodInfo) (bool, reasons, float64) {
	return func(_ *types.NodeInfo, pod *types.PodInfo) (bool, reasons, float64) {
		for name, container := range pod.RunningContainers {
			container.DevRequests = types.ResourceList{"x": 1}
			container.AllocateFrom = types.ResourceLocation{"x": "y"}
			pod.RunningContainers[name] = container
		}
		return true, nil, score
	}
}
