// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"cmp"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corelisters "k8s.io/client-go/listers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

// problem is a small cluster and a pod for the brute force, which counts GPUs and CPUs itself,
// without frameworks, trees or searches.
type problem struct {
	machines []machine
	tenants  []tenant
	request  gpuRequest
}

func newProblem(random *rand.Rand) problem {
	var p problem
	for i := range 1 + random.IntN(2) {
		m := machine{
			name: fmt.Sprintf("n%d", i), pairs: 1 + random.IntN(3), cpu: 4 + random.Int64N(4),
			zone: string("ab"[random.IntN(2)]), tainted: random.IntN(8) == 0,
		}
		p.machines = append(p.machines, m)
		free, cpu := m.gpus(), m.cpu
		random.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
		for range random.IntN(6) {
			t := tenant{
				name: fmt.Sprintf("t%d", len(p.tenants)), node: m, cpu: random.Int64N(min(cpu, 3) + 1),
				priority: int32(random.IntN(3)), daemon: random.IntN(8) == 0,
			}
			if n := random.IntN(3); n <= len(free) && !t.daemon {
				t.gpus, free = free[:n], free[n:]
			}
			cpu -= t.cpu
			p.tenants = append(p.tenants, t)
		}
	}
	p.request.cpu = random.Int64N(5)
	if random.IntN(2) == 0 {
		p.request.count, p.request.connected = 1+random.IntN(4), random.IntN(2) == 0
	} else {
		p.request.pairs = 1 + random.IntN(2)
	}
	if random.IntN(3) == 0 {
		p.request.zone = string("ab"[random.IntN(2)])
	}
	return p
}

// fits reports whether a request fits a machine on which these tenants run.
func (p problem) fits(r gpuRequest, m machine, tenants []tenant, tolerates bool) bool {
	cpu := m.cpu
	free := make([]int, m.pairs) // GPUs by pair
	for i := range free {
		free[i] = 2
	}
	total := 2 * m.pairs
	for _, t := range tenants {
		if t.node.name != m.name {
			continue
		}
		cpu -= t.cpu
		for _, gpu := range t.gpus {
			free[slices.Index(m.gpus(), gpu)/2]--
			total--
		}
	}
	pairs := 0
	for _, n := range free {
		if n == 2 {
			pairs++
		}
	}
	if r.connected {
		pairs -= r.count / 2
	}
	return cpu >= r.cpu && total >= r.count && pairs >= r.pairs && (r.zone == "" || r.zone == m.zone) &&
		(!m.tainted || tolerates)
}

// anywhere returns the names of the machines that a request fits.
func (p problem) anywhere(r gpuRequest, tenants []tenant, tolerates bool) (names []string) {
	for _, m := range p.machines {
		if p.fits(r, m, tenants, tolerates) {
			names = append(names, m.name)
		}
	}
	return names
}

// fewestToEnd tries all sets of tenants. It returns the priorities of the cheapest, falling, and
// whether there is one.
func (p problem) fewestToEnd() (cheapest []int32, ok bool) {
	for set := range 1 << len(p.tenants) {
		if ok && bits.OnesCount(uint(set)) > len(cheapest) {
			continue
		}
		var left []tenant
		priorities, may := []int32{}, true
		for i, t := range p.tenants {
			if set>>i&1 == 0 {
				left = append(left, t)
				continue
			}
			may = may && !t.daemon
			priorities = append(priorities, t.priority)
		}
		slices.Sort(priorities)
		slices.Reverse(priorities)
		if may && len(p.anywhere(p.request, left, false)) > 0 &&
			(!ok || cmp.Or(cmp.Compare(len(priorities), len(cheapest)), slices.Compare(priorities, cheapest)) < 0) {
			cheapest, ok = priorities, true
		}
	}
	return cheapest, ok
}

// nodeMoreHelps reports whether the pod fits an empty machine like one of the cluster's.
func (p problem) nodeMoreHelps() bool {
	return slices.ContainsFunc(p.machines, func(m machine) bool {
		var daemons []tenant
		for _, t := range p.tenants {
			if t.node.name == m.name && t.daemon {
				daemons = append(daemons, t)
			}
		}
		return p.fits(p.request, m, daemons, false)
	})
}

// relaxations returns all changes of the request that make it fit.
func (p problem) relaxations() (texts []string) {
	for n := p.request.count - 1; n > 0; n-- {
		less := p.request
		if less.count = n; len(p.anywhere(less, p.tenants, false)) > 0 {
			texts = append(texts, fmt.Sprintf(`container "main": nvidia.com/gpu %d in place of %d`, n, p.request.count))
			break
		}
	}
	if any := p.request; any.connected && any.count > 1 {
		if any.connected = false; len(p.anywhere(any, p.tenants, false)) > 0 {
			texts = append(texts, "without the annotation's request gpu/gpu-generate-topology")
		}
	}
	if p.request.pairs > 0 {
		any := p.request
		any.count, any.pairs = 2*p.request.pairs, 0
		if len(p.anywhere(any, p.tenants, false)) > 0 {
			texts = append(texts, `container "main": without the level gpugrp0`)
		}
		for n := 2*p.request.pairs - 1; n > 0; n-- { // the last of an odd number goes to any free GPU
			less := p.request
			less.count, less.pairs, less.connected = n, 0, true
			if len(p.anywhere(less, p.tenants, false)) > 0 {
				texts = append(texts, fmt.Sprintf(`container "main": %d in place of %d devices in the annotation`, n,
					2*p.request.pairs))
				break
			}
		}
	}
	if any := p.request; any.zone != "" {
		if any.zone = ""; len(p.anywhere(any, p.tenants, false)) > 0 {
			texts = append(texts, "without the node selector zone="+p.request.zone)
		}
	}
	if len(p.anywhere(p.request, p.tenants, true)) > 0 {
		texts = append(texts, "with a toleration of the taint team=x:NoSchedule")
	}
	return texts
}

// simulation returns the problem as the engine sees it. The caller holds the engine's slot.
func (p problem) simulation(f *fixture) *simulation {
	lister := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{})
	states := nodestate.New(f.schedulers, corelisters.NewNodeLister(lister), clock.RealClock{})
	for _, m := range p.machines {
		node := m.node()
		if err := lister.Add(node); err != nil {
			f.Fatal(err)
		}
		states.Observe(f.Context(), node)
	}
	sim := &simulation{engine: f.engine, states: states.Copy(), budget: &budget{
		ctx: f.Context(), deadline: time.Now().Add(time.Minute), engine: f.engine, began: time.Now(),
	}}
	for _, t := range p.tenants {
		sim.pods = append(sim.pods, t.pod())
	}
	return sim
}

// On 1,000 random small clusters, the engine and the brute force find the same fitting nodes and
// the same smallest change of each kind.
func TestSmallestChangeMatchesBruteForce(t *testing.T) {
	f := newFixture(t)
	end, err := f.engine.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	fit, ended, sizes := 0, 0, map[int]int{}
	for seed := range uint64(1000) {
		p := newProblem(rand.New(rand.NewPCG(seed, 2)))
		c, err := p.simulation(f).cycle(t.Context(), newPod(fmt.Sprintf("pod-%d", seed), p.request))
		if err != nil {
			t.Fatal(err)
		}
		why, err := c.why(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if want := p.anywhere(p.request, p.tenants, false); !slices.Equal(why.Fits, want) {
			t.Errorf("cluster %d fits on %v, want %v: %+v", seed, why.Fits, want, p)
			continue
		}
		if len(why.Fits) > 0 {
			fit++
			continue
		}
		p.checkReasons(t, seed, why)
		if !why.Smallest.Complete {
			t.Errorf("cluster %d: the search was not complete", seed)
		}
		if n := p.checkEnd(t, seed, why.Smallest.End); n > 0 {
			ended++
			sizes[n]++
		}
		if got := why.Smallest.Add != nil; got != p.nodeMoreHelps() {
			t.Errorf("cluster %d: a node more helps: %v, want %v: %+v", seed, got, !got, p)
		}
		var texts []string
		for _, r := range why.Smallest.Relax {
			texts = append(texts, r.Text)
		}
		want := p.relaxations()
		slices.Sort(texts)
		slices.Sort(want)
		if !slices.Equal(texts, want) {
			t.Errorf("cluster %d: relaxations %q, want %q: %+v", seed, texts, want, p)
		}
	}
	t.Logf("%d of 1000 fit at once; in %d, pods have to end: %v", fit, ended, sizes)
	if fit < 100 || ended < 100 || sizes[2] < 10 {
		t.Error("the clusters are too much alike")
	}
}

// checkReasons checks that each node has a reason, and that the reasons about taints, selectors,
// CPU and GPUs are true.
func (p problem) checkReasons(t *testing.T, seed uint64, why *schedulerapi.Why) {
	t.Helper()
	explained := 0
	for _, reason := range why.Reasons {
		explained += len(reason.Nodes)
		for _, name := range reason.Nodes {
			m := p.machines[slices.IndexFunc(p.machines, func(m machine) bool { return m.name == name })]
			relaxed := p.request
			about := m
			switch {
			case strings.Contains(reason.Text, "taint"):
				if !m.tainted {
					t.Errorf("cluster %d: %s has no taint: %q", seed, name, reason.Text)
				}
				continue
			case strings.Contains(reason.Text, "affinity/selector"):
				if m.zone == p.request.zone {
					t.Errorf("cluster %d: %s is in zone %s: %q", seed, name, m.zone, reason.Text)
				}
				continue
			case strings.Contains(reason.Text, "GPU"):
				relaxed.cpu = 0
			case strings.Contains(reason.Text, "cpu"):
				relaxed.count, relaxed.pairs = 0, 0
			default:
				t.Errorf("cluster %d: an unknown reason: %q", seed, reason.Text)
			}
			if p.fits(relaxed, about, p.tenants, true) {
				t.Errorf("cluster %d: %s is no reason on %s: %+v", seed, reason.Text, name, p)
			}
		}
	}
	if explained != len(p.machines) {
		t.Errorf("cluster %d: %d of %d nodes have a reason", seed, explained, len(p.machines))
	}
}

// checkEnd compares the pods to end with those of the brute force, and returns how many they are.
func (p problem) checkEnd(t *testing.T, seed uint64, end *schedulerapi.EndPods) int {
	t.Helper()
	cheapest, ok := p.fewestToEnd()
	if end == nil || !ok {
		if ok != (end != nil) {
			t.Errorf("cluster %d: pods to end: %+v; the brute force finds %v, %v: %+v", seed, end, cheapest, ok, p)
		}
		return 0
	}
	var priorities []int32
	left := slices.Clone(p.tenants)
	for _, pod := range end.Pods {
		priorities = append(priorities, pod.Priority)
		left = slices.DeleteFunc(left, func(t tenant) bool { return t.name == pod.Name })
	}
	if !slices.Equal(priorities, cheapest) {
		t.Errorf("cluster %d: ends pods of priorities %v, want %v: %+v", seed, priorities, cheapest, p)
	}
	if fits := p.anywhere(p.request, left, false); !slices.Contains(fits, end.Placement.Node) {
		t.Errorf("cluster %d: it goes to %s, and fits %v", seed, end.Placement.Node, fits)
	}
	for _, container := range end.Placement.Containers {
		for _, device := range container.Devices {
			for _, t2 := range left {
				for _, gpu := range t2.gpus {
					if t2.node.name == end.Placement.Node && t2.node.path(gpu) == device.Path {
						t.Errorf("cluster %d: it gets %s, which %s has", seed, gpu, t2.name)
					}
				}
			}
		}
	}
	return len(end.Pods)
}
