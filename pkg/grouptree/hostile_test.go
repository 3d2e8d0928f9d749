// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// hostile describes a request with the highest possible cost: the walk misses every placement of
// it, and the free quantity is just too small, or just large enough in another order.
type hostile struct {
	gpus                     int // of the machine: 8 or 64
	regular, sidecars, inits int // containers that request devices
	idle                     int // init containers without requests
	devices                  int // placeholders of a container
	nested                   int // how many levels above the device the requests name: 0 to 3
	types                    int // different resources that each placeholder requests
	equal, rescored, pinned  bool
}

// build returns a node, a pod and its containers.
func (h hostile) build() (*types.NodeInfo, *types.PodInfo, []Container) {
	node := machine(h.gpus)
	for g := range h.gpus { // each in a different state
		node.Used[gpuName(h.gpus, g)+"/memory"] = 80<<30 - int64(10_000+g)
		for t := range h.types {
			node.Allocatable[gpuName(h.gpus, g)+types.ResourceName(fmt.Sprintf("/extra%d", t))] = 1_000
		}
	}
	pod := &types.PodInfo{
		InitContainers:    map[string]types.ContainerInfo{},
		RunningContainers: map[string]types.ContainerInfo{},
	}
	var spec []Container
	add := func(kind Kind, count int, requests bool) {
		for k := range count {
			name := fmt.Sprintf("%c%04d", "rsi"[kind], k)
			if !requests {
				name = "idle" + name
			}
			info := types.ContainerInfo{}
			if requests {
				info = h.container(k)
			}
			if kind == Init {
				pod.InitContainers[name] = info
			} else {
				pod.RunningContainers[name] = info
			}
			spec = append(spec, Container{Name: name, Kind: kind})
		}
	}
	add(Sidecar, h.sidecars, true)
	add(Init, h.inits, true)
	add(Init, h.idle, false)
	add(Regular, h.regular, true)
	return node, pod, spec
}

// container returns the requests of one container.
func (h hostile) container(k int) types.ContainerInfo {
	info := types.ContainerInfo{
		DevRequests: types.ResourceList{}, Scorer: types.ResourceScorer{}, AllocateFrom: types.ResourceLocation{},
	}
	levels := []string{"rack", "gpugrp1", "gpugrp0"}
	if h.gpus == 8 {
		levels = levels[1:]
	}
	for d := range h.devices {
		path := "resource/group"
		for index, level := range levels {
			if index >= len(levels)-h.nested {
				path += fmt.Sprintf("/%s/%d", level, d>>(2*(len(levels)-index)))
			} else {
				path += fmt.Sprintf("/%s/any%d", level, d)
			}
		}
		path += fmt.Sprintf("/gpu/%d", d)
		memory := types.ResourceName(path + "/memory")
		info.DevRequests[memory] = 9_999
		if !h.equal {
			info.DevRequests[memory] += int64((d*37 + k) % h.gpus)
		}
		for t := range h.types {
			info.DevRequests[types.ResourceName(fmt.Sprintf("%s/extra%d", path, t))] = int64(1 + (d+t)%7)
		}
		if h.rescored {
			info.Scorer[memory] = 1
		}
		if h.pinned && d == 0 {
			info.AllocateFrom[memory] = gpuName(h.gpus, k%h.gpus) + "/memory"
		}
	}
	return info
}

// mutate returns the request with one property grown, shrunk or inverted.
func (h hostile) mutate(rng *rand.Rand) hostile {
	scale := func(n *int, most int) {
		switch rng.IntN(3) {
		case 0:
			*n = min(most, *n*2+1)
		case 1:
			*n /= 2
		default:
			*n = min(most, *n+1)
		}
	}
	switch rng.IntN(10) {
	case 0:
		h.gpus = 72 - h.gpus
	case 1:
		scale(&h.regular, 200)
	case 2:
		scale(&h.sidecars, 200)
	case 3:
		scale(&h.inits, 200)
	case 4:
		scale(&h.idle, 2_000)
	case 5:
		scale(&h.devices, 1_000)
	case 6:
		h.nested = rng.IntN(4)
	case 7:
		scale(&h.types, 40)
	case 8:
		h.equal = !h.equal
	default:
		h.rescored, h.pinned = rng.IntN(2) == 0, rng.IntN(4) == 0
	}
	return h
}

// climb searches for costly requests: it keeps each mutation that costs at least as much as the
// previous one, and restarts now and then. It calls visit with each request that compiles.
func climb(
	tb testing.TB,
	rounds int,
	seed uint64,
	visit func(h hostile, tree *DeviceTree, used []int64, req *Request) (cost int),
) {
	tb.Helper()
	rng := rand.New(rand.NewPCG(7, seed))
	first := hostile{gpus: 8, regular: 1, devices: 9}
	best, bestCost, refused := first, 0, 0
	for range rounds {
		next := best.mutate(rng)
		if rng.IntN(50) == 0 {
			next, bestCost = first.mutate(rng), 0
		}
		if size := (next.regular + next.sidecars + next.inits) * next.devices * (1 + next.types); size > 3*MaxRequests {
			continue // always refused, and slow to build
		}
		node, pod, spec := next.build()
		req, err := CompileRequest(pod, spec)
		if err != nil {
			refused++
			continue
		}
		tree := mustTree(tb, node)
		if cost := visit(next, tree, tree.Dense(node.Used), req); cost >= bestCost {
			best, bestCost = next, cost
		}
	}
	if refused == 0 && rounds > 1000 {
		tb.Errorf("none of %d requests was refused for its size: they are all small", rounds)
	}
}

// TestSearchesEndAtTheStepLimit searches for requests whose search continues after its limit.
func TestSearchesEndAtTheStepLimit(t *testing.T) {
	const limit = 20_000
	hit, placer := 0, NewPlacer(limit)
	climb(t, 600, 1, func(h hostile, tree *DeviceTree, used []int64, req *Request) int {
		got := placer.Place(tree, used, req)
		if most := limit + overshoot(tree, req); placer.exact.steps > most {
			t.Fatalf("%d steps, with a limit of %d at most %d: %+v", placer.exact.steps, limit, most, h)
		}
		if got.LimitHit {
			hit++
		}
		return got.Steps
	})
	if hit == 0 {
		t.Error("no search reached the limit: the requests are not hostile")
	}
}

// overshoot returns how many steps a search may go beyond its limit: the cost of inspecting one
// request, and of one path from the first container to the last.
func overshoot(tree *DeviceTree, req *Request) int {
	return 2*len(tree.typ) + 2*len(tree.instances) + 16*stepsPerRequest*len(req.items) + len(req.groups) +
		2*len(req.containers)*(len(req.containers)+len(req.items))
}

// TestContainersWithoutRequestsCostNothing adds a thousand of them to a request.
func TestContainersWithoutRequestsCostNothing(t *testing.T) {
	for name, h := range map[string]hostile{
		"searched":  {gpus: 8, sidecars: 2, inits: 2, regular: 2, devices: 3, types: 1},
		"in vain":   {gpus: 64, regular: 1, devices: 64, nested: 3},
		"satisfied": {gpus: 8, regular: 1, devices: 1},
	} {
		t.Run(name, func(t *testing.T) {
			place := func(idle int) (*Placement, Digest) {
				h.idle = idle
				node, pod, spec := h.build()
				tree, req := mustTree(t, node), mustRequest(t, pod, spec)
				return NewPlacer(0).Place(tree, tree.Dense(node.Used), req), req.Digest()
			}
			alone, digest := place(0)
			crowded, crowdedDigest := place(1000)
			if alone.Fits != crowded.Fits || alone.Steps != crowded.Steps || alone.Score != crowded.Score {
				t.Errorf("alone %+v, among a thousand %+v", alone, crowded)
			}
			if digest != crowdedDigest {
				t.Error("containers that request nothing change the digest")
			}
		})
	}
}

// TestTooManyContainersErrorNamesOne has one container more than allowed.
func TestTooManyContainersErrorNamesOne(t *testing.T) {
	_, pod, spec := hostile{gpus: 8, regular: MaxContainers + 1, devices: 1}.build()
	_, err := CompileRequest(pod, spec)
	const want = `container "r0064": more than 64 containers of the pod request devices: request them in fewer ` +
		`containers`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// BenchmarkHostileRequests searches for the request that takes longest to place and to explain, and
// prints it next to the maximum of an ordinary request, one GPU on a machine of the same size.
func BenchmarkHostileRequests(b *testing.B) {
	placer := NewPlacer(0)
	measure := func(tree *DeviceTree, used []int64, req *Request) time.Duration {
		began := time.Now()
		placement := placer.Place(tree, used, req)
		if !placement.Fits {
			Explain(tree, used, req, placement)
		}
		return time.Since(began)
	}
	var worst, ordinary time.Duration
	var what hostile
	seed := uint64(0)
	for b.Loop() {
		seed++
		climb(b, 400, seed, func(h hostile, tree *DeviceTree, used []int64, req *Request) int {
			took := measure(tree, used, req)
			for range 4 { // other load of the machine is no cost of the request
				took = min(took, measure(tree, used, req))
			}
			if took > worst {
				worst, what = took, h
			}
			ordinary = max(ordinary, measure(tree, used, mustRequest(b, podRequesting(h.gpus, []int{1}), nil)))
			return int(took)
		})
	}
	b.Logf("the worst: %+v", what)
	b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
	b.ReportMetric(float64(ordinary.Microseconds())/1000, "ordinary-ms")
}
