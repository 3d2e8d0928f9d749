// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"github.com/kubedevice/kubedevice/plugins/gpu"
)

// simulation is the scheduler's device schedulers on a cluster, without Kubernetes.
type simulation struct {
	*testing.T
	set   *allocation.Set
	nodes []*simulated
}

// simulated is one node of a simulation.
type simulated struct {
	name      string
	gpus      int
	inventory *allocation.Inventory
	holders   []*allocation.Holder
	state     *allocation.Node // nil when the holders have changed
}

// newSimulation returns a simulation of nodes that cluster.add draws.
func newSimulation(t *testing.T, topology allocation.Topology, drawings ...string) *simulation {
	plugin := New("gpus", gpu.Resource)
	s := &simulation{T: t, set: allocation.New(klog.Logger{}, nil, allocation.Named{File: "gpus.so", Plugin: plugin})}
	s.set.SetTopology(topology)
	drawn := newCluster(t)
	for i, drawing := range drawings {
		name := fmt.Sprintf("n%02d", i)
		drawn.add(name, drawing)
		info := drawn.nodes[name]
		info.Capacity = maps.Clone(info.Allocatable)
		info.Capacity[gpu.Resource] = countGPUs(info.Allocatable)
		inventory, err := s.set.AddNode(t.Context(), info)
		if err != nil {
			t.Fatal(err)
		}
		s.nodes = append(s.nodes, &simulated{
			name: name, gpus: int(countGPUs(info.Allocatable)), inventory: inventory,
		})
	}
	return s
}

// stateOf returns the node's state.
func (s *simulation) stateOf(n *simulated) *allocation.Node {
	if n.state == nil {
		var err error
		if n.state, err = s.set.Node(s.Context(), n.inventory, n.holders); err != nil {
			s.Fatal(err)
		}
	}
	return n.state
}

// requestOf returns the request of a pod.
func requestOf(pod *types.PodInfo, containers []grouptree.Container) *request.Request {
	return &request.Request{Pod: pod, Containers: containers}
}

// fits returns whether a pod fits a node.
func (s *simulation) fits(n *simulated, pod *request.Request) allocation.Verdict {
	verdict, err := s.set.Fit(s.Context(), s.stateOf(n), pod)
	if err != nil {
		s.Fatal(err)
	}
	return verdict
}

// place puts a pod on the best node that it fits, and reports whether there is one.
func (s *simulation) place(pod *request.Request) bool {
	var best *simulated
	var found allocation.Verdict
	for _, n := range s.nodes {
		verdict := s.fits(n, pod)
		if verdict.Fits && (best == nil ||
			cmp.Or(cmp.Compare(verdict.Quality, found.Quality), cmp.Compare(verdict.Score, found.Score)) > 0) {
			best, found = n, verdict
		}
	}
	if best == nil {
		return false
	}
	allocated, err := s.set.Allocate(s.Context(), s.stateOf(best), pod)
	if err != nil {
		s.Fatal(err)
	}
	best.holders = append(best.holders, allocation.NewHolder(pod.Pod.Name, allocated, pod.Containers))
	best.state = nil
	return true
}

// end ends a pod.
func (s *simulation) end(name string) {
	for _, n := range s.nodes {
		before := len(n.holders)
		n.holders = slices.DeleteFunc(n.holders, func(h *allocation.Holder) bool { return h.UID == name })
		if len(n.holders) < before {
			n.state = nil
		}
	}
}

// free returns how many GPUs of the cluster are free, and how many pairs of them are: two for a
// close group of which four or five are free.
func (s *simulation) free() (gpus, pairs int) {
	for _, n := range s.nodes {
		groups := map[string]int{}
		for _, resource := range s.stateOf(n).Resources() {
			name := string(resource.Name)
			if strings.HasSuffix(name, "/"+gpu.Cards) && resource.Used < resource.Allocatable {
				group, _, _ := strings.Cut(name, "/"+gpu.Level+"/")
				groups[group]++
				gpus++
			}
		}
		for _, count := range groups {
			pairs += count / 2
		}
	}
	return gpus, pairs
}

// randomDrawing returns a node of up to 16 GPUs.
func randomDrawing(random *rand.Rand) string {
	var drawing strings.Builder
	id := 'a'
	for wide := range 1 + random.IntN(2) {
		if wide > 0 {
			drawing.WriteString("| ")
		}
		for range 1 + random.IntN(4) {
			for range []int{1, 2, 2, 2, 4}[random.IntN(5)] {
				if id < 'q' {
					drawing.WriteRune(id)
					id++
				}
			}
			drawing.WriteByte(' ')
		}
	}
	return drawing.String()
}

// arrival is a pod that counts GPUs, and how long it runs, in arrivals of other pods.
type arrival struct {
	name  string
	count int64
	ends  float64
}

// outcome is the mean over the second half of a run.
type outcome struct {
	pairs   float64 // that are free, for 100 free GPUs
	used    float64 // GPUs, of 100
	waiting float64 // pods
}

// add adds another outcome, divided by n.
func (o *outcome) add(other outcome, n int) {
	o.pairs += other.pairs / float64(n)
	o.used += other.used / float64(n)
	o.waiting += other.waiting / float64(n)
}

// run has pods arrive at a cluster in which pods end so that no more than 80 % are in use.
func (s *simulation) run(arrivals []arrival) (mean outcome) {
	total := 0
	for _, n := range s.nodes {
		total += n.gpus
	}
	var queue, running []arrival
	for i, next := range arrivals {
		queue = append(queue, next)
		var used int64
		for _, pod := range running {
			used += pod.count
		}
		slices.SortFunc(running, func(a, b arrival) int { return cmp.Compare(a.ends, b.ends) })
		for len(running) > 0 && 5*(used+next.count) > int64(4*total) {
			used -= running[0].count
			s.end(running[0].name)
			running = running[1:]
		}
		queue = slices.DeleteFunc(queue, func(pod arrival) bool {
			if 5*(used+pod.count) > int64(4*total) {
				return false
			}
			named := counting(pod.count)
			named.Name = pod.name
			if !s.place(requestOf(named, []grouptree.Container{{Name: "app"}})) {
				return false
			}
			used += pod.count
			running = append(running, pod)
			return true
		})
		if i >= len(arrivals)/2 {
			gpus, free := s.free()
			mean.add(outcome{
				pairs: 100 * float64(free) / float64(max(1, gpus)), used: 100 - 100*float64(gpus)/float64(total),
				waiting: float64(len(queue)),
			}, len(arrivals)-len(arrivals)/2)
		}
	}
	return mean
}

// arrivals returns pods that count 1 to 8 GPUs, small numbers more often.
func newArrivals(random *rand.Rand, n int) []arrival {
	var all []arrival
	for i := range n {
		all = append(all, arrival{
			name: fmt.Sprintf("pod-%04d", i), count: []int64{1, 1, 1, 1, 2, 2, 2, 3, 4, 8}[random.IntN(10)],
			ends: float64(i) + 40*random.ExpFloat64(),
		})
	}
	return all
}
