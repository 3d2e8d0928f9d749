// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// eachContainer replaces each container of a pod by what change makes of it.
func eachContainer(pod *types.PodInfo, change func(name string, info *types.ContainerInfo)) {
	for _, containers := range []map[string]types.ContainerInfo{pod.RunningContainers, pod.InitContainers} {
		for name, info := range containers {
			if info.DevRequests == nil {
				info.DevRequests, info.AllocateFrom = types.ResourceList{}, types.ResourceLocation{}
			}
			change(name, &info)
			containers[name] = info
		}
	}
}

// sum adds up a list.
func sum(list types.ResourceList) (sum int64) {
	for _, quantity := range list {
		sum += quantity
	}
	return sum
}

// shaped translates GPUs for the group scheduler, in a way that depends on all that a Translator
// may look at.
func shaped(counts *atomic.Int64) devicescheduler.DeviceScheduler {
	t := &translator{}
	translate := func(node *types.NodeInfo, pod *types.PodInfo) {
		counts.Add(1)
		revision := t.revision.Load()
		eachContainer(pod, func(_ string, info *types.ContainerInfo) {
			for i := range info.KubeRequests["nvidia.com/gpu"] {
				device := fmt.Sprintf("gpu/%d", i)
				resource.AddGroupResource(info.DevRequests, device+"/cards", 1)
				if memory := info.Requests["gpu/0/memory"]; memory > 0 {
					resource.AddGroupResource(info.DevRequests, device+"/memory", memory+int64(revision%2))
				}
				if len(node.Allocatable) > 6 {
					resource.AddGroupResource(info.DevRequests, device+"/wear", int64(revision))
				}
			}
			if sum(pod.Requests) > 1 {
				info.Scorer = types.ResourceScorer{"resource/group/gpu/0/memory": 1}
			}
		})
	}
	t.fake = &fake{
		name: "shaped", groups: true,
		add: func(node *types.NodeInfo) {
			if len(node.Allocatable) == 4 { // a kind of node that changes what requests mean
				t.revision.Add(1)
			}
		},
		fit: func(node *types.NodeInfo, pod *types.PodInfo) (bool, reasons, float64) {
			if translate(node, pod); len(pod.RunningContainers) == 3 && len(node.Allocatable) == 2 {
				return false, reasons{because("too small")}, 0
			}
			return true, nil, 0
		},
		allocate: func(node *types.NodeInfo, pod *types.PodInfo) error { translate(node, pod); return nil },
		take: func(node *types.NodeInfo, pod *types.PodInfo) error {
			eachContainer(pod, func(_ string, info *types.ContainerInfo) {
				node.Used["example.com/wear"] += sum(info.KubeRequests)
			})
			return nil
		},
	}
	return t
}

// ownPlaces serves FPGAs by itself, in a way that depends on all that a Pure plugin may look at.
func ownPlaces(counts *atomic.Int64) *fake {
	serve := func(node *types.NodeInfo, pod *types.PodInfo) error {
		counts.Add(1)
		used := sum(node.Used)
		if used%7 == 6 {
			return fmt.Errorf("%d are used", used)
		}
		eachContainer(pod, func(_ string, info *types.ContainerInfo) {
			for i := range info.KubeRequests["example.com/fpga"] {
				info.DevRequests[types.ResourceName(fmt.Sprint("fpga/", i))] = 1 + int64(len(info.DevRequests))
				info.AllocateFrom[types.ResourceName(fmt.Sprint("fpga/", i))] = types.ResourceName(fmt.Sprint("fpga/",
					used))
			}
		})
		return nil
	}
	return &fake{
		name: "own",
		fit: func(node *types.NodeInfo, pod *types.PodInfo) (bool, reasons, float64) {
			if err := serve(node, pod); err != nil {
				return false, reasons{because(err.Error())}, 0
			}
			return true, nil, float64(sum(node.Used)%5) / 5
		},
		allocate: serve,
	}
}

// nosy looks at the names of pod and node.
func nosy() *fake {
	look := func(node *types.NodeInfo, pod *types.PodInfo) bool {
		eachContainer(pod, func(_ string, info *types.ContainerInfo) {
			if info.KubeRequests["example.com/nic"] > 0 {
				info.DevRequests["nic"], info.AllocateFrom["nic"] = 1, types.ResourceName(node.Name+pod.Name)
			}
		})
		return len(node.Name)+len(pod.Name) != 5
	}
	return &fake{
		name: "nosy",
		fit: func(node *types.NodeInfo, pod *types.PodInfo) (bool, reasons, float64) {
			return look(node, pod), nil, float64(len(pod.Name)) / 10
		},
		allocate: func(node *types.NodeInfo, pod *types.PodInfo) error { look(node, pod); return nil },
	}
}

// pair is a set that caches, and one of equal plugins that does not. Both are asked the same.
type pair struct {
	*testing.T
	cached, plain           *Set
	cachedCalls, plainCalls atomic.Int64
	nodes                   map[string][2]*Inventory
	holders                 map[string][2][]*Holder // by node
}

// newPair returns the pair of some of the plugins.
func newPair(t *testing.T, random *rand.Rand) *pair {
	p := &pair{T: t, nodes: map[string][2]*Inventory{}, holders: map[string][2][]*Holder{}}
	var cached, plain []Named
	for i, which := range random.Perm(3)[:1+random.IntN(3)] {
		make := []func(*atomic.Int64) devicescheduler.DeviceScheduler{
			shaped,
			func(counts *atomic.Int64) devicescheduler.DeviceScheduler { return pure{ownPlaces(counts)} },
			func(*atomic.Int64) devicescheduler.DeviceScheduler { return nosy() },
		}[which]
		file := fmt.Sprint("f", i)
		cached = append(cached, Named{File: file, Plugin: make(&p.cachedCalls)})
		plain = append(plain, Named{File: file, Plugin: make(&p.plainCalls)})
	}
	p.cached = newSet(klog.Background(), clock.RealClock{}, unrecorded{}, defaultSizes, cached...)
	p.plain = newSet(klog.Background(), clock.RealClock{}, unrecorded{}, sizes{}, plain...)
	return p
}

// both calls f for each set, and compares what they return.
func both[T any](p *pair, what string, f func(s *Set, which int) (T, error)) (cached, plain T, ok bool) {
	p.Helper()
	plain, plainErr := f(p.plain, 1)
	cached, cachedErr := f(p.cached, 0)
	if fmt.Sprint(plainErr) != fmt.Sprint(cachedErr) || errors.Is(plainErr, pluginhost.ErrNoAnswer) {
		p.Fatalf("%s: error %v, with caches %v", what, plainErr, cachedErr)
	}
	return cached, plain, plainErr == nil
}

// addNode adds a node of up to four GPUs, or changes one. It lists some extended resources as its
// devices, and its kubelet counts others.
func (p *pair) addNode(name string, random *rand.Rand) {
	gpus, memory, listed := random.IntN(5), random.IntN(2) == 0, random.Perm(5)[:random.IntN(6)]
	inventories := [2]*Inventory{}
	cached, plain, ok := both(p, "AddNode", func(s *Set, _ int) (*Inventory, error) {
		info := types.NewNodeInfoWithName(name)
		for i, extended := range []types.ResourceName{
			"nvidia.com/gpu", "example.com/fpga", "example.com/nic", "example.com/5", "example.com/6",
		} {
			info.KubeAlloc[extended] = 2
			if slices.Contains(listed, i) {
				info.Capacity[extended] = 2
			}
		}
		for i := range gpus {
			device := fmt.Sprintf("gpu/%s-%d", name, i)
			resource.AddGroupResource(info.Allocatable, device+"/cards", 1)
			if memory {
				resource.AddGroupResource(info.Allocatable, device+"/memory", 100)
				resource.AddGroupResource(info.Allocatable, device+"/wear", 3)
			}
		}
		return s.AddNode(p.Context(), info)
	})
	if ok {
		inventories = [2]*Inventory{cached, plain}
	}
	p.nodes[name] = inventories
}

// state returns the node with what its pods hold, for each set.
func (p *pair) state(name string) [2]*Node {
	cached, plain, _ := both(p, "Node", func(s *Set, which int) (*Node, error) {
		return s.Node(p.Context(), p.nodes[name][which], p.holders[name][which])
	})
	if diff := cmp.Diff(plain.info, cached.info); diff != "" {
		p.Fatalf("node (-plain +cached):\n%s", diff)
	}
	return [2]*Node{cached, plain}
}

// try asks both sets whether a pod fits a node, and has them allocate its devices.
func (p *pair) try(node string, request func() *request.Request) {
	nodes := p.state(node)
	cached, plain, _ := both(p, "Fit", func(s *Set, which int) (Verdict, error) {
		return s.Fit(p.Context(), nodes[which], request())
	})
	if diff := cmp.Diff(plain, cached); diff != "" {
		p.Fatalf("verdict (-plain +cached):\n%s", diff)
	}
	allocated, want, ok := both(p, "Allocate", func(s *Set, which int) (*types.PodInfo, error) {
		return s.Allocate(p.Context(), nodes[which], request())
	})
	if diff := cmp.Diff(want, allocated); diff != "" {
		p.Fatalf("allocation (-plain +cached):\n%s", diff)
	}
	if ok {
		held := p.holders[node]
		for which, allocation := range []*types.PodInfo{allocated, want} {
			held[which] = append(held[which], NewHolder(fmt.Sprint(len(held[which])), allocation, request().Containers))
		}
		p.holders[node] = held
	}
}

// randomRequest returns what a pod may request: one of two kinds, or one that differs from it in a
// single thing.
func randomRequest(random *rand.Rand, first uint64) func() *request.Request {
	name, kind, variant := strings.Repeat("p", 1+random.IntN(4)), first+random.Uint64N(2), random.IntN(9)
	return func() *request.Request {
		random := rand.New(rand.NewPCG(kind, 0))
		request := &request.Request{Pod: types.NewPodInfo()}
		request.Pod.Name = name
		for i := range 1 + random.IntN(3) {
			at := grouptree.Container{Name: fmt.Sprint("c", i), Kind: grouptree.Kind(random.IntN(3))}
			info := types.ContainerInfo{KubeRequests: types.ResourceList{"cpu": 1}, Requests: types.ResourceList{}}
			for _, counted := range []types.ResourceName{"nvidia.com/gpu", "example.com/fpga", "example.com/nic"} {
				if random.IntN(2) == 0 {
					info.KubeRequests[counted] = 1 + random.Int64N(2)
				}
			}
			if random.IntN(2) == 0 {
				info.Requests["gpu/0/memory"] = 10 * random.Int64N(6)
			}
			switch {
			case variant == 4 && at.Kind == grouptree.Sidecar:
				at.Kind = grouptree.Regular
			case i > 0:
			case variant == 0:
				info.KubeRequests["nvidia.com/gpu"]++
			case variant == 1:
				info.Requests["gpu/0/memory"] += 7
			case variant == 2:
				info.Scorer = types.ResourceScorer{"resource/group/gpu/0/memory": 1}
			case variant == 3:
				request.Pod.Requests["gpu/gpu-generate-topology"] = 2
			case variant == 5 || variant == 6:
				info.KubeRequests = types.ResourceList{types.ResourceName(fmt.Sprint("example.com/", variant)): 1}
			case variant == 7:
				at.Name = "other"
			}
			request.Containers = append(request.Containers, at)
			if at.Kind == grouptree.Init {
				request.Pod.InitContainers[at.Name] = info
			} else {
				request.Pod.RunningContainers[at.Name] = info
			}
		}
		return request
	}
}

// With any plugins, nodes and pods, a set answers the same with caches and without.
func TestCachesChangeNoAnswer(t *testing.T) {
	var cachedCalls, plainCalls int64
	for seed := range uint64(150) {
		random := rand.New(rand.NewPCG(seed, 1))
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := newPair(t, random)
			names := []string{"a", "b", "cc"}
			for _, name := range names {
				p.addNode(name, random)
			}
			for range 150 {
				switch node := names[random.IntN(len(names))]; random.IntN(12) {
				case 0:
					p.addNode(node, random)
				case 1:
					p.holders[node] = [2][]*Holder{}
				default:
					p.try(node, randomRequest(random, seed%10))
				}
			}
			cachedCalls += p.cachedCalls.Load()
			plainCalls += p.plainCalls.Load()
		})
	}
	if cachedCalls*10 > plainCalls*9 {
		t.Errorf("%d calls of plugins with caches and %d without: the test shows nothing", cachedCalls, plainCalls)
	}
}
