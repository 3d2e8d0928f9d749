// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// hold has a pod hold the card of a GPU of a node.
func (c *cluster) hold(node, gpus string) {
	for name := range c.nodes[node].Allocatable {
		for _, id := range gpus {
			if strings.HasSuffix(string(name), "/gpu/"+string(id)+"/cards") {
				holder := types.NewPodInfo()
				holder.RunningContainers["app"] = types.ContainerInfo{
					DevRequests:  types.ResourceList{name: 1},
					AllocateFrom: types.ResourceLocation{name: name},
				}
				c.holders[node] = append(c.holders[node], holder)
			}
		}
	}
}

func TestACountAloneGetsTheBestConnectedGPUsThatAreFree(t *testing.T) {
	const sockets = "ab cd | ef gh"
	tests := map[string]struct {
		drawing, held string
		count         int64
		want          string // any of these
		quality       float64
	}{
		"a pair":            {sockets, "ac", 2, "ef gh", 1},
		"two of one socket": {sockets, "aceg", 2, "bd fh", 0.75},
		"two of two sockets where nothing else is free": {sockets, "abcefg", 2, "dh", 0.5},
		"a socket":                             {sockets, "a", 4, "efgh", 0.75},
		"three of one socket":                  {sockets, "ae", 3, "bcd fgh", 0.75},
		"five of two sockets":                  {sockets, "ae", 5, "bcdgh cdfgh", 5.0 / 12},
		"with other GPUs free on another node": {"a b c d", "", 2, "cd", 0.75},
		"all that there are":                   {sockets, "", 8, "abcdefgh", 0.375},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.prefer = true
			c.add("n1", test.drawing)
			c.add("switch", "abcdefgh")
			c.hold("n1", test.held)
			gpus, reason := c.place("n1", counting(test.count))
			if !slices.Contains(strings.Fields(test.want), gpus) || math.Abs(c.quality-test.quality) > 1e-9 {
				t.Errorf("got %q with quality %v, %s; want one of %q with %v", gpus, c.quality, reason, test.want,
					test.quality)
			}
		})
	}
}

func TestAPodThatPrefersTopologyFitsWhereverEnoughGPUsAreFree(t *testing.T) {
	c := newCluster(t)
	c.prefer = true
	c.add("n1", "ab cd")
	c.hold("n1", "ac")
	if gpus, reason := c.place("n1", requesting(2, types.ResourceList{"gpu/gpu-generate-topology": 1})); reason == "" {
		t.Errorf("no pair is free, and the pod that requires one got %q", gpus)
	}
	if gpus, reason := c.place("n1", counting(2)); gpus != "bd" {
		t.Errorf("got %q, %s, want bd", gpus, reason)
	}
	c = newCluster(t)
	c.after = true
	c.add("n1", "ab cd")
	c.hold("n1", "ac")
	if gpus, reason := c.place("n1", requesting(2, types.ResourceList{"gpu/gpu-generate-topology": 1})); gpus != "bd" {
		t.Errorf("after the wait it got %q, %s, want bd", gpus, reason)
	}
}

func TestOnlyCountsThatPreferTopologyAreRefined(t *testing.T) {
	two := counting(2).RunningContainers["app"]
	tests := map[string]struct {
		pod     *types.PodInfo
		quality float64
		prefers bool
	}{
		"a count":                   {counting(2), 1, true},
		"one GPU":                   {counting(1), 0, false},
		"a count that requires it":  {requesting(2, types.ResourceList{"gpu/gpu-generate-topology": 1}), 0, false},
		"a count anywhere":          {requesting(2, types.ResourceList{"gpu/gpu-generate-topology": 0}), 0, false},
		"GPUs that the user groups": {requesting(2, types.ResourceList{"gpugrp0/A/gpu/a/cards": 1}), 0, false},
		"an init container": {&types.PodInfo{
			InitContainers:    map[string]types.ContainerInfo{"first": two},
			RunningContainers: map[string]types.ContainerInfo{"app": {}},
		}, 1, true},
		"two containers, for which one pair is left": {&types.PodInfo{
			RunningContainers: map[string]types.ContainerInfo{"app": two, "second": two},
		}, (1 + 0.75) / 2, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.add("n1", "ab c d e")
			plugin := preferring{c.plugin, prefers}
			if err := plugin.PodAllocate(c.nodes["n1"], test.pod); err != nil {
				t.Fatal(err)
			}
			before := test.pod.Clone()
			quality, prefers := plugin.Refine(c.nodes["n1"], test.pod)
			if quality != test.quality || prefers != test.prefers {
				t.Errorf("quality %v, prefers %v; want %v, %v", quality, prefers, test.quality, test.prefers)
			}
			if diff := cmp.Diff(before, test.pod); (diff == "") == test.prefers {
				t.Errorf("the pod before and after differs: %s", diff)
			}
		})
	}
}

func TestAPodThatPrefersTopologyTakesInstancesWhereThatIsCounted(t *testing.T) {
	node := types.NewNodeInfoWithName("n1")
	for _, name := range []types.ResourceName{"gpu/a/gi/0/ci/x/cards", "gpu/b/gi/0/ci/y/cards"} {
		node.Allocatable["resource/group/gpugrp1/0/gpugrp0/0/"+name] = 1
	}
	c := newCluster(t)
	c.prefer = true
	c.add("whole", "ab")
	c.addInfo(node)
	if instances, reason := c.place("n1", counting(2)); instances != "xy" || c.quality != 0 {
		t.Errorf("got %q with quality %v, %s", instances, c.quality, reason)
	}
}
