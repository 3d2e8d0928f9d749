// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/kube"
)

// preferred are clusters to which a pod of priority 1000 comes that counts GPUs. What each node's
// GPUs are held by is written as for TestPreemptionEvictsTheCheapestPodsThatHelp.
var preferred = map[string]struct {
	nodes   []string
	count   int64
	node    string // where the pod goes, "" when it must wait
	evicted string // the letters of the pods that go
	// allocated is what the pod gets here, where priorities leave no choice.
	allocated string
}{
	"no pod, for two single GPUs are free": {
		nodes: []string{"l. .l"}, count: 2, node: "n0", allocated: "n0-gpu-1 n0-gpu-2",
	},
	"no pod, for a node has what is free": {
		nodes: []string{"ll ll", "h. .h"}, count: 2, node: "n1", allocated: "n1-gpu-1 n1-gpu-2",
	},
	"one pod, for one GPU is free, although two pods hold a pair": {
		nodes: []string{"mm .l hh"}, count: 2, node: "n0", evicted: "l", allocated: "n0-gpu-2 n0-gpu-3",
	},
	"one pod of another pair than the free GPU": {
		nodes: []string{"lh .h"}, count: 2, node: "n0", evicted: "l", allocated: "n0-gpu-0 n0-gpu-2",
	},
	"two of the lowest priority, although they hold no pair": {
		nodes: []string{"ml lm"}, count: 2, node: "n0", evicted: "ll", allocated: "n0-gpu-1 n0-gpu-2",
	},
	"one of a low priority before one of a higher that leaves a pair": {
		nodes: []string{"m. lh lh"}, count: 2, node: "n0", evicted: "l",
	},
	"the pods that no budget guards, although they hold no pair": {
		nodes: []string{"gm mg"}, count: 2, node: "n0", evicted: "mm", allocated: "n0-gpu-1 n0-gpu-2",
	},
	"guarded pods where there are no others": {
		nodes: []string{"gh hg"}, count: 2, node: "n0", evicted: "gg", allocated: "n0-gpu-0 n0-gpu-3",
	},
	"pods of the node that no budget guards": {
		nodes: []string{"gg gg", "mh hm"}, count: 2, node: "n1", evicted: "mm", allocated: "n1-gpu-0 n1-gpu-3",
	},
	"pods of the node where fewer have to go": {
		nodes: []string{"ll hh", "lh .h"}, count: 2, node: "n1", evicted: "l", allocated: "n1-gpu-0 n1-gpu-2",
	},
	"pods of the node where the highest priority is lowest": {
		nodes: []string{"m. hh", "lh hl"}, count: 2, node: "n1", evicted: "ll", allocated: "n1-gpu-0 n1-gpu-3",
	},
	"pods of the node where it helps": {
		nodes: []string{"lh hh", "hl hl"}, count: 2, node: "n1", evicted: "ll", allocated: "n1-gpu-1 n1-gpu-3",
	},
	"as many as it counts, of equal priority": {
		nodes: []string{"ll ll ll"}, count: 3, node: "n0", evicted: "lll",
	},
	"as many as it counts less those that are free": {
		nodes: []string{"l. l. ll"}, count: 4, node: "n0", evicted: "ll",
	},
	"none, for no node has enough of low priority": {
		nodes: []string{"lh hh", "h. hh"}, count: 2,
	},
	"none, for no node has as many": {
		nodes: []string{"ll ll", "ll ll"}, count: 5,
	},
}

// A pod that counts GPUs prefers topology by default. Preemption makes as many GPUs free as it
// counts, whichever these are: no pod has to go so that others are connected better. So the pods
// that go are those that upstream's scheduler evicts for the same count, which is tried as well.
func TestPreemptionForAPodThatPrefersTopologyTakesWhatUpstreamTakes(t *testing.T) {
	for program, start := range map[string]func(*testing.T){
		asOurs:     func(t *testing.T) { startScheduler(t) },
		asUpstream: func(t *testing.T) { startUpstream(t) },
	} {
		t.Run(program, func(t *testing.T) {
			start(t)
			for name, test := range preferred {
				t.Run(name, func(t *testing.T) {
					c := newCluster(t)
					c.guarded("guarded")
					before := c.hold(test.nodes)
					wanted := newPod("wanted", test.count)
					wanted.Spec.PriorityClassName = c.priorityClass("h", 1000)
					pod := c.create(wanted)
					if test.node == "" {
						c.awaitNoVictims(pod)
					} else if pod = c.await(pod, "to be bound", kube.Scheduled); pod.Spec.NodeName != test.node {
						t.Errorf("it goes to %s, want %s", pod.Spec.NodeName, test.node)
					}
					if evicted := c.evicted(before, test.nodes); evicted != test.evicted {
						t.Errorf("evicted pods %q, want %q", evicted, test.evicted)
					}
					if program == asUpstream {
						return // which allocates none
					}
					if got := devices(pod); test.allocated != "" && got != test.allocated {
						t.Errorf("allocated %s, want %s", got, test.allocated)
					}
					c.check()
				})
			}
		})
	}
}

// evicted returns the letters of the holders that are gone, sorted.
func (c *cluster) evicted(holders, nodes []string) string {
	c.Helper()
	after := c.pods()
	var letters []string
	for _, name := range holders {
		if slices.ContainsFunc(after, func(pod corev1.Pod) bool { return pod.Name == name }) {
			continue
		}
		var node, at int
		if _, err := fmt.Sscanf(name, "n%d-%d", &node, &at); err != nil {
			c.Fatal(err)
		}
		letters = append(letters, strings.ReplaceAll(nodes[node], " ", "")[at:at+1])
	}
	slices.Sort(letters)
	return strings.Join(letters, "")
}
