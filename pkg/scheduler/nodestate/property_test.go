// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// cluster is a simple model of a scheduler and an API server that share one node. Its pods are in
// one of the states that the lists name; what it knows of devices it reads from the annotations of
// bound pods alone.
type cluster struct {
	*fixture
	rand *rand.Rand
	node *v1.Node
	gpus []string

	pending  []*v1.Pod          // not scheduled
	assumed  []*v1.Pod          // reserved, and in the scheduler's cache
	lost     []*v1.Pod          // reserved and kept: the answer to their binding was lost
	inFlight map[string]*v1.Pod // bound in the API server, unknown to the scheduler's cache, by name
	bound    map[string]*v1.Pod // bound, and in the scheduler's cache
	snapshot []*v1.Pod
}

// take removes a random pod from a list.
func (c *cluster) take(list *[]*v1.Pod) *v1.Pod {
	if len(*list) == 0 {
		return nil
	}
	i := c.rand.IntN(len(*list))
	pod := (*list)[i]
	*list = slices.Delete(slices.Clone(*list), i, i+1)
	return pod
}

// update makes the snapshot what the scheduler's cache is.
func (c *cluster) update() {
	c.snapshot = nil
	for _, pod := range c.assumed {
		c.snapshot = append(c.snapshot, assumed(pod, "n"))
	}
	c.snapshot = append(c.snapshot, slices.Collect(maps.Values(c.bound))...)
}

// persist writes a pod's reserved allocation to the API server.
func (c *cluster) persist(pod *v1.Pod) *v1.Pod {
	annotation := c.cache.Reserved("n", pod.UID)
	if annotation == "" {
		c.Fatalf("pod %s is bound without a reservation", pod.Name)
	}
	return c.fixture.bound(pod, "n", annotation)
}

// steps are what can happen.
var steps = map[string]func(*cluster){
	"a pod is created": func(c *cluster) {
		pod := c.pod(fmt.Sprintf("pod-%s", c.nextVersion()), 1+c.rand.Int64N(3))
		if c.rand.IntN(3) == 0 {
			pod = with(pod, allocated(pod.Name, "n", c.gpus[c.rand.IntN(len(c.gpus))]))
		}
		c.pending = append(c.pending, pod)
	},
	"a pod is scheduled": func(c *cluster) {
		c.update()
		if pod := c.take(&c.pending); pod != nil {
			info := nodeInfo(c.node, c.snapshot...)
			if _, err := c.reserve(info, pod); err == nil {
				c.assumed = append(c.assumed, pod)
			} else {
				c.pending = append(c.pending, pod)
			}
		}
	},
	"a pod group is scheduled": func(c *cluster) {
		c.update()
		info := nodeInfo(c.node, c.snapshot...)
		for _, pod := range slices.Clone(c.pending) {
			if _, err := c.reserve(info, pod); err == nil {
				c.assumed = append(c.assumed, pod)
				c.pending = slices.DeleteFunc(slices.Clone(c.pending), func(other *v1.Pod) bool { return other == pod })
			}
		}
	},
	"a pod is scheduled in simulation": func(c *cluster) {
		c.update()
		if len(c.pending) > 0 {
			pod := c.pending[c.rand.IntN(len(c.pending))]
			_, _ = c.reserve(nodeInfo(c.node, c.snapshot...), pod)
			c.cache.Unreserve("n", pod.UID)
		}
	},
	"a binding succeeds": func(c *cluster) {
		if pod := c.take(&c.assumed); pod != nil {
			c.bound[pod.Name] = c.persist(pod)
		}
	},
	"a binding is refused": func(c *cluster) {
		if pod := c.take(&c.assumed); pod != nil {
			c.cache.Unreserve("n", pod.UID)
			c.pending = append(c.pending, pod)
		}
	},
	"a binding succeeds, but its answer is lost": func(c *cluster) {
		if pod := c.take(&c.assumed); pod != nil {
			c.inFlight[pod.Name] = c.persist(pod)
			c.cache.Keep("n", pod.UID)
			c.cache.Unreserve("n", pod.UID)
		}
	},
	"a binding fails, and its answer is lost": func(c *cluster) {
		if pod := c.take(&c.assumed); pod != nil {
			c.cache.Keep("n", pod.UID)
			c.cache.Unreserve("n", pod.UID)
			c.lost = append(c.lost, pod)
		}
	},
	"a lost binding is settled": func(c *cluster) {
		if pod := c.take(&c.lost); pod != nil {
			c.cache.Resolve("n", pod.UID)
			c.pending = append(c.pending, pod)
		}
	},
	"a pod is scheduled again while its binding is unsure": func(c *cluster) {
		if pod := c.take(&c.lost); pod != nil {
			if !c.cache.Resume("n", pod) {
				c.Fatalf("pod %s has nothing to resume", pod.Name)
			}
			c.cache.Resolve("n", pod.UID)
			c.assumed = append(c.assumed, pod)
		}
	},
	"the informer catches up": func(c *cluster) {
		maps.Copy(c.bound, c.inFlight)
		clear(c.inFlight)
	},
	"a bound pod is deleted": func(c *cluster) {
		names := slices.Sorted(maps.Keys(c.bound))
		if len(names) > 0 {
			pod := c.bound[names[c.rand.IntN(len(names))]]
			delete(c.bound, pod.Name)
			c.cache.PodDeleted(pod.UID)
		}
	},
	"the node is updated": func(c *cluster) { c.node = c.fixture.node("n", "n-1", c.gpus...) },
	"the scheduler is started again": func(c *cluster) {
		c.pending = slices.Concat(c.pending, c.assumed, c.lost)
		c.assumed, c.lost = nil, nil
		maps.Copy(c.bound, c.inFlight)
		clear(c.inFlight)
		c.cache = New(c.set, c.cache.lister, c.clock)
		c.cache.Observe(c.Context(), c.node)
	},
}

// held returns who holds each GPU, for all that the API server and the reservations say, and fails
// when two do.
func (c *cluster) held() map[string]string {
	held := map[string]string{}
	hold := func(name, annotation string) {
		info, err := deviceinfo.DecodePod(annotation)
		if err != nil {
			c.Fatal(err)
		}
		for _, gpu := range devices(info) {
			if other, taken := held[gpu]; taken {
				c.Fatalf("%s has been given to %s and to %s", gpu, other, name)
			}
			held[gpu] = name
		}
	}
	for _, pods := range []map[string]*v1.Pod{c.bound, c.inFlight} {
		for name, pod := range pods {
			hold(name, pod.Annotations[deviceinfo.Annotation])
		}
	}
	for _, pod := range slices.Concat(c.assumed, c.lost) {
		hold(pod.Name, c.cache.Reserved("n", pod.UID))
	}
	return held
}

// After any changes in any order, no GPU is allocated to two pods, and each that no pod holds can
// be allocated.
func TestNoDeviceIsGivenTwiceOrLost(t *testing.T) {
	names := slices.Sorted(maps.Keys(steps))
	for seed := range uint64(40) {
		c := &cluster{
			fixture: newFixture(t), rand: rand.New(rand.NewPCG(seed, 0)), gpus: []string{"A", "B", "C", "D", "E", "F"},
			inFlight: map[string]*v1.Pod{}, bound: map[string]*v1.Pod{},
		}
		c.node = c.fixture.node("n", "n-1", c.gpus...)
		var history []string
		for range 100 {
			step := names[c.rand.IntN(len(names))]
			history = append(history, step)
			steps[step](c)
			held := c.held()
			c.update()
			var free []string
			for _, gpu := range c.gpus {
				if held[gpu] == "" {
					free = append(free, gpu)
				}
			}
			want := strings.Join(free, " ")
			if want == "" {
				want = "none"
			}
			if got := c.fixture.free(nodeInfo(c.node, c.snapshot...)); got != want {
				t.Fatalf("seed %d: free are %q, want %q, after:\n%s", seed, got, want, strings.Join(history, "\n"))
			}
		}
	}
}
