// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"github.com/kubedevice/kubedevice/plugins/gpu"
)

var upstreamStates = flag.Int("upstream.states", 40, "number of clusters of the comparison with upstream's Filter; "+
	"the full run is of 300")

// randomPod returns a pod that counts GPUs in some of its containers, as the API server has it and
// as a request.
func randomPod(random *rand.Rand, name string) (*v1.Pod, *request.Request) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-of-a-pod"}}
	info, containers := types.NewPodInfo(), []grouptree.Container{}
	info.Name = name
	kinds := [][]grouptree.Kind{
		{grouptree.Regular}, {grouptree.Regular}, {grouptree.Regular}, {grouptree.Regular, grouptree.Regular},
		{grouptree.Init, grouptree.Regular}, {grouptree.Sidecar, grouptree.Regular},
		{grouptree.Sidecar, grouptree.Init, grouptree.Regular},
		{grouptree.Init, grouptree.Sidecar, grouptree.Init, grouptree.Regular, grouptree.Regular},
	}[random.IntN(8)]
	for i, kind := range kinds {
		count := []int64{0, 1, 1, 2, 2, 3, 4}[random.IntN(7)]
		if len(kinds) == 1 {
			count = 1 + random.Int64N(5)
		}
		container := v1.Container{Name: fmt.Sprint("c", i)}
		counted := types.ContainerInfo{KubeRequests: types.ResourceList{}}
		if count > 0 {
			quantity := *apiresource.NewQuantity(count, apiresource.DecimalSI)
			list := v1.ResourceList{v1.ResourceName(gpu.Resource): quantity}
			container.Resources = v1.ResourceRequirements{Requests: list, Limits: list}
			counted.KubeRequests[gpu.Resource] = count
		}
		switch kind {
		case grouptree.Init:
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
			info.InitContainers[container.Name] = counted
		case grouptree.Sidecar:
			container.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
			info.RunningContainers[container.Name] = counted
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, container)
			info.RunningContainers[container.Name] = counted
		}
		containers = append(containers, grouptree.Container{Name: container.Name, Kind: kind})
	}
	return pod, requestOf(info, containers)
}

// With any pods, a node that upstream's Filter accepts for the next pod is accepted here, if
// pods do nothing but count devices.
func TestNodesThatUpstreamAcceptsAreAccepted(t *testing.T) {
	accepted, refused := 0, 0
	for seed := range uint64(*upstreamStates) {
		random := rand.New(rand.NewPCG(seed, 7))
		var drawings []string
		for range 2 + random.IntN(3) {
			drawings = append(drawings, randomDrawing(random))
		}
		s := newSimulation(t, allocation.TopologyPrefer, drawings...)
		upstream, total := map[string]*framework.NodeInfo{}, 0
		for _, n := range s.nodes {
			total += n.gpus
			node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
			node.Status.Allocatable = v1.ResourceList{
				v1.ResourceName(gpu.Resource): *apiresource.NewQuantity(int64(n.gpus), apiresource.DecimalSI),
				v1.ResourcePods:               *apiresource.NewQuantity(110, apiresource.DecimalSI),
			}
			upstream[n.name] = framework.NewNodeInfo()
			upstream[n.name].SetNode(node)
		}
		for i := 0; ; i++ {
			pod, asked := randomPod(random, fmt.Sprint("pod-", i))
			for _, n := range s.nodes {
				fits := s.fits(n, asked)
				lacks := noderesources.Fits(pod, upstream[n.name], nil, noderesources.ResourceRequestsOptions{})
				switch {
				case len(lacks) > 0:
					refused++
				case !fits.Fits && !fits.NoDevices:
					t.Fatalf("cluster %d: %s (%s) fits upstream, and is refused here: %v %v\npod: %+v", seed, n.name,
						drawings, fits.Shortage, fits.Reasons, asked.Pod)
				default:
					accepted++
				}
			}
			if free, _ := s.free(); 2*free <= total || i == 100 {
				break
			}
			before := map[string]int{}
			for _, n := range s.nodes {
				before[n.name] = len(n.holders)
			}
			s.place(asked)
			for _, n := range s.nodes {
				if len(n.holders) > before[n.name] {
					upstream[n.name].AddPod(pod)
				}
			}
		}
	}
	t.Logf("%d nodes accepted, %d refused by upstream", accepted, refused)
	if accepted < *upstreamStates || refused < *upstreamStates/4 {
		t.Error("the clusters are too much alike")
	}
}
