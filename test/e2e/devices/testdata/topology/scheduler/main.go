// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A scheduler plugin in the style of those for the published host: it translates a count of GPUs
// into a request by topology for the group scheduler, and writes into every map that it is given,
// without a check whether the map is nil.
package main

import (
	"fmt"
	"strings"
	"sync"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const (
	counted types.ResourceName = "nvidia.com/gpu"
	scratch types.ResourceName = "example.com/scratch"
)

// topology knows the group of each GPU on the nodes: the GPUs of one pair have one prefix.
type topology struct {
	mu    sync.Mutex
	pairs map[string]int // GPUs, by the path of their pair on the node added last
}

var _ devicescheduler.DeviceScheduler = (*topology)(nil)

// CreateDeviceSchedulerPlugin is the entry point.
func CreateDeviceSchedulerPlugin() (devicescheduler.DeviceScheduler, error) {
	return &topology{}, nil
}

func main() {}

func (*topology) GetName() string           { return "topology" }
func (*topology) UsingGroupScheduler() bool { return true }
func (*topology) RemoveNode(string)         {}

func (p *topology) AddNode(_ string, node *types.NodeInfo) {
	writeNode(node)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pairs = map[string]int{}
	for resource := range node.Allocatable {
		if pair, _, ok := strings.Cut(string(resource), "/gpu/"); ok && strings.HasSuffix(string(resource), "/cards") {
			p.pairs[pair]++
		}
	}
}

func (p *topology) PodFitsDevice(node *types.NodeInfo, pod *types.PodInfo,
	_ bool) (bool, []devicescheduler.PredicateFailureReason, float64) {
	writeNode(node)
	p.translate(pod)
	return true, nil, 0
}

func (p *topology) PodAllocate(node *types.NodeInfo, pod *types.PodInfo) error {
	writeNode(node)
	p.translate(pod)
	return nil
}

func (p *topology) TakePodResources(node *types.NodeInfo, pod *types.PodInfo) error {
	writeNode(node)
	p.translate(pod)
	return nil
}

func (p *topology) ReturnPodResources(node *types.NodeInfo, pod *types.PodInfo) error {
	return p.TakePodResources(node, pod)
}

// perPair is the number of GPUs of the largest pair.
func (p *topology) perPair() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	largest := 1
	for _, gpus := range p.pairs {
		largest = max(largest, gpus)
	}
	return int64(largest)
}

// translate requests the GPUs that each container counts, as many of them in one pair as can be.
func (p *topology) translate(pod *types.PodInfo) {
	pod.Requests[scratch] = 1
	perPair := p.perPair()
	for _, containers := range []map[string]types.ContainerInfo{pod.InitContainers, pod.RunningContainers} {
		for name, container := range containers {
			count := container.KubeRequests[counted]
			container.KubeRequests[scratch] = 1
			container.Requests[counted] = count
			container.DevRequests[scratch] = 1
			delete(container.DevRequests, scratch)
			container.AllocateFrom[scratch] = scratch
			delete(container.AllocateFrom, scratch)
			container.Scorer[scratch] = 1
			delete(container.Scorer, scratch)
			for i := range count {
				container.DevRequests[types.ResourceName(fmt.Sprintf(
					"resource/group/gpugrp1/0/gpugrp0/%d/gpu/%d/cards", i/perPair, i))] = 1
			}
			containers[name] = container
		}
	}
}

func writeNode(node *types.NodeInfo) {
	for _, list := range []types.ResourceList{
		node.Capacity, node.Allocatable, node.Used, node.KubeCap, node.KubeAlloc,
	} {
		list[scratch] = 1
	}
	node.Scorer[scratch] = 0
}
