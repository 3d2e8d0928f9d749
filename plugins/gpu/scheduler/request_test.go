// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"github.com/kubedevice/kubedevice/plugins/gpu"
)

func TestRequestsAreTranslatedToGPUs(t *testing.T) {
	podLevel := func(value int64) *types.PodInfo {
		pod := counting(2)
		pod.Requests[generateTopology] = value
		return pod
	}
	tests := map[string]struct {
		pod  *types.PodInfo
		want []string
	}{
		"a count alone requests the best topology": {
			pod:  counting(2),
			want: []string{"gpugrp1/0/gpugrp0/0/gpu/0/cards=1", "gpugrp1/0/gpugrp0/0/gpu/1/cards=1"},
		},
		"the README's pod, which requests the topology on its container": {
			pod:  requesting(2, types.ResourceList{"gpu/gpu-generate-topology": 1}),
			want: []string{"gpugrp1/0/gpugrp0/0/gpu/0/cards=1", "gpugrp1/0/gpugrp0/0/gpu/1/cards=1"},
		},
		"topology requested on the pod": {
			pod:  podLevel(1),
			want: []string{"gpugrp1/0/gpugrp0/0/gpu/0/cards=1", "gpugrp1/0/gpugrp0/0/gpu/1/cards=1"},
		},
		"topology switched off on the pod: each GPU may be anywhere": {
			pod:  podLevel(0),
			want: []string{"gpugrp1/0/gpugrp0/0/gpu/0/cards=1", "gpugrp1/1/gpugrp0/1/gpu/1/cards=1"},
		},
		"topology switched off on the container": {
			pod:  requesting(2, types.ResourceList{"gpu/gpu-generate-topology": 0}),
			want: []string{"gpugrp1/0/gpugrp0/0/gpu/0/cards=1", "gpugrp1/1/gpugrp0/1/gpu/1/cards=1"},
		},
		"a count in the annotation counts like one in the limits": {
			pod:  requesting(0, types.ResourceList{"nvidia.com/gpu": 2}),
			want: []string{"gpugrp1/0/gpugrp0/0/gpu/0/cards=1", "gpugrp1/0/gpugrp0/0/gpu/1/cards=1"},
		},
		"the larger of the two counts is meant": {
			pod:  requesting(1, types.ResourceList{"nvidia.com/gpu": 2}),
			want: []string{"gpugrp1/0/gpugrp0/0/gpu/0/cards=1", "gpugrp1/0/gpugrp0/0/gpu/1/cards=1"},
		},
		"a shape written by hand is kept, and its limits count the same GPUs": {
			pod:  requesting(2, types.ResourceList{"gpugrp0/A/gpu/a/cards": 1, "gpugrp0/A/gpu/b/cards": 1}),
			want: []string{"gpugrp1/0/gpugrp0/A/gpu/a/cards=1", "gpugrp1/0/gpugrp0/A/gpu/b/cards=1"},
		},
		"a shape may be written with the prefix, and with both levels": {
			pod: requesting(
				0,
				types.ResourceList{
					"resource/group/gpugrp1/X/gpugrp0/A/gpu/a/cards": 1,
					"resource/group/gpugrp1/X/gpugrp0/B/gpu/a/cards": 1,
				},
			),
			want: []string{"gpugrp1/X/gpugrp0/A/gpu/a/cards=1", "gpugrp1/X/gpugrp0/B/gpu/a/cards=1"},
		},
		"a shape is kept also when topology is requested": {
			pod:  requesting(1, types.ResourceList{"gpu/a/memory": 5, "gpu/gpu-generate-topology": 1}),
			want: []string{"gpugrp1/0/gpugrp0/0/gpu/a/memory=5"},
		},
		"a share of a GPU needs no limits": {
			pod:  requesting(0, types.ResourceList{"gpu/a/memory": 8 << 30}),
			want: []string{"gpugrp1/0/gpugrp0/0/gpu/a/memory=8589934592"},
		},
		"card and memory of one placeholder are of one GPU": {
			pod:  requesting(1, types.ResourceList{"gpu/a/cards": 1, "gpu/a/memory": 5}),
			want: []string{"gpugrp1/0/gpugrp0/0/gpu/a/cards=1", "gpugrp1/0/gpugrp0/0/gpu/a/memory=5"},
		},
		"limits beyond what was written add GPUs, called by what is free": {
			pod: requesting(3, types.ResourceList{"gpu/0/cards": 1}),
			want: []string{
				"gpugrp1/0/gpugrp0/0/gpu/0/cards=1", "gpugrp1/1/gpugrp0/1/gpu/1/cards=1",
				"gpugrp1/2/gpugrp0/2/gpu/2/cards=1",
			},
		},
		"a share and a count that is larger are for different GPUs": {
			pod:  requesting(2, types.ResourceList{"gpu/a/memory": 5}),
			want: []string{"gpugrp1/0/gpugrp0/0/gpu/!0/cards=1", "gpugrp1/1/gpugrp0/1/gpu/!a/memory=5"},
		},
		"as many shares as are counted are of different GPUs": {
			pod: requesting(2, types.ResourceList{"gpugrp0/A/gpu/a/memory": 5, "gpugrp0/A/gpu/!b/memory": 5}),
			want: []string{
				"gpugrp1/0/gpugrp0/A/gpu/!a/memory=5", "gpugrp1/0/gpugrp0/A/gpu/!b/memory=5",
			},
		},
		"of more shares than are counted, as many are of different GPUs": {
			pod: requesting(2, types.ResourceList{
				"gpu/b/cards": 1, "gpu/b/memory": 5, "gpu/a/memory": 5, "gpu/c/memory": 5,
			}),
			want: []string{
				"gpugrp1/0/gpugrp0/0/gpu/!a/memory=5", "gpugrp1/1/gpugrp0/1/gpu/!b/cards=1",
				"gpugrp1/1/gpugrp0/1/gpu/!b/memory=5", "gpugrp1/2/gpugrp0/2/gpu/c/memory=5",
			},
		},
		"a placeholder that is marked already is not taken twice": {
			pod: requesting(2, types.ResourceList{"gpu/a/memory": 5, "gpu/!a/memory": 6}),
			want: []string{
				"gpugrp1/0/gpugrp0/0/gpu/!!a/memory=5", "gpugrp1/1/gpugrp0/1/gpu/!a/memory=6",
			},
		},
		"cards are of different GPUs already": {
			pod: requesting(2, types.ResourceList{"gpu/a/cards": 1, "gpu/b/cards": 1, "gpu/c/memory": 5}),
			want: []string{
				"gpugrp1/0/gpugrp0/0/gpu/a/cards=1", "gpugrp1/1/gpugrp0/1/gpu/b/cards=1",
				"gpugrp1/2/gpugrp0/2/gpu/c/memory=5",
			},
		},
		"requests for other devices are left alone": {
			pod:  requesting(1, types.ResourceList{"resource/group/nic/0/ports": 1, "example.com/nic": 1}),
			want: []string{"gpugrp1/0/gpugrp0/0/gpu/0/cards=1"},
		},
		"a pod without GPUs requests none": {
			pod: requesting(0, types.ResourceList{"resource/group/nic/0/ports": 1}),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.add("n1", "ab cd")
			if fits, reasons, _ := c.plugin.PodFitsDevice(c.nodes["n1"], test.pod, false); !fits {
				t.Fatalf("does not fit: %v", reasons)
			}
			if diff := cmp.Diff(test.want, requested(test.pod)); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

func TestScorersFollowTheirRequests(t *testing.T) {
	pod := requesting(0, types.ResourceList{"gpu/a/memory": 5, "resource/group/gpu/b/memory": 5})
	container := pod.RunningContainers["app"]
	container.Scorer = types.ResourceScorer{"gpu/a/memory": 1, "resource/group/gpu/b/memory": 0}
	pod.RunningContainers["app"] = container

	if err := newCluster(t).plugin.PodAllocate(types.NewNodeInfo(), pod); err != nil {
		t.Fatal(err)
	}
	scorer := pod.RunningContainers["app"].Scorer
	a, okA := scorer["resource/group/gpugrp1/0/gpugrp0/0/gpu/a/memory"]
	b, okB := scorer["resource/group/gpugrp1/1/gpugrp0/1/gpu/b/memory"]
	if !okA || a != 1 || !okB || b != 0 {
		t.Errorf("scorer = %v", scorer)
	}
}

// withMemory adds a node with GPUs of so many bytes each.
func (c *cluster) withMemory(name string, memory ...int64) {
	node := types.NewNodeInfoWithName(name)
	var gpus []gpu.GPU
	for i, bytes := range memory {
		gpus = append(gpus, gpu.GPU{ID: fmt.Sprint("GPU-", i), Memory: bytes, Groups: []int{0, 0}})
	}
	gpu.Publish(node, gpu.Resource, gpus)
	c.plugin.AddNode(name, node)
	c.nodes[name] = node
}

func TestMillionthsOfAGPUsMemoryBecomeBytesOfTheNodesGPUs(t *testing.T) {
	const path = "gpugrp1/0/gpugrp0/0/gpu/a/memory="
	for name, test := range map[string]struct {
		memory     []int64
		millionths int64
		bytes      int64 // that are requested, too
		want       string
		err        string
	}{
		"a quarter":             {memory: []int64{1000, 1000}, millionths: 250_000, want: path + "250"},
		"all":                   {memory: []int64{1000}, millionths: 1_000_000, want: path + "1000"},
		"it is rounded down":    {memory: []int64{100}, millionths: 333_333, want: path + "33"},
		"of a very large GPU":   {memory: []int64{1 << 62}, millionths: 500_000, want: path + fmt.Sprint(1<<61)},
		"a very small part":     {memory: []int64{100}, millionths: 1, err: "request at least 1"},
		"more than all":         {memory: []int64{1000}, millionths: 1_000_001, err: "request 1 to 1000000"},
		"bytes, too":            {memory: []int64{1000}, millionths: 5, bytes: 5, err: "remove one"},
		"GPUs that differ":      {memory: []int64{1, 2}, millionths: 5, err: "have different memory: request bytes"},
		"GPUs of unknown sizes": {memory: []int64{0}, millionths: 5, err: "a healthy GPU whose memory is known"},
	} {
		requests := types.ResourceList{"gpu/a/memory-millionths": test.millionths}
		if test.bytes > 0 {
			requests["gpu/a/memory"] = test.bytes
		}
		c, pod := newCluster(t), requesting(0, requests)
		c.withMemory("n", test.memory...)
		err := c.plugin.PodAllocate(c.nodes["n"], pod)
		if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: error %v, want %q", name, err, test.err)
		}
		if got := strings.Join(requested(pod), " "); err == nil && got != test.want {
			t.Errorf("%s: it requests %q, want %q", name, got, test.want)
		}
	}
}

func TestAContainerHoldsBytesOfTheGPUWhoseMillionthsItRequests(t *testing.T) {
	c := newCluster(t)
	c.withMemory("n", 16<<30)
	if _, reason := c.place("n", requesting(0, types.ResourceList{"gpu/a/memory-millionths": 250_000})); reason != "" {
		t.Fatal(reason)
	}
	container := c.holders["n"][0].RunningContainers["app"]
	held := types.ResourceList{}
	for request, from := range container.AllocateFrom {
		held[from] += container.DevRequests[request]
	}
	want := types.ResourceList{"resource/group/gpugrp1/0/gpugrp0/0/gpu/GPU-0/memory": 4 << 30}
	if diff := cmp.Diff(want, held); diff != "" {
		t.Errorf("it holds (-want +got):\n%s", diff)
	}
}

func TestScorersFollowRequestsThatAreMarkedAsDifferent(t *testing.T) {
	pod := requesting(2, types.ResourceList{"gpu/a/memory": 5, "resource/group/gpu/b/memory": 5})
	container := pod.RunningContainers["app"]
	container.Scorer = types.ResourceScorer{"gpu/a/memory": 1, "resource/group/gpu/b/memory": 0}
	pod.RunningContainers["app"] = container

	c := newCluster(t)
	c.add("n1", "ab cd")
	if err := c.plugin.PodAllocate(c.nodes["n1"], pod); err != nil {
		t.Fatal(err)
	}
	scorer := pod.RunningContainers["app"].Scorer
	a, okA := scorer["resource/group/gpugrp1/0/gpugrp0/0/gpu/!a/memory"]
	b, okB := scorer["resource/group/gpugrp1/1/gpugrp0/1/gpu/!b/memory"]
	if !okA || a != 1 || !okB || b != 0 {
		t.Errorf("scorer = %v", scorer)
	}
}

func TestRequestsOfOtherPluginsAreKept(t *testing.T) {
	theirs := types.ResourceList{"resource/group/gpu/x/cards": 1}
	served := counting(1)
	served.RunningContainers["app"] = types.ContainerInfo{
		KubeRequests: types.ResourceList{gpu.Resource: 1},
		DevRequests:  theirs,
	}
	if err := newCluster(t).plugin.PodAllocate(types.NewNodeInfo(), served); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"gpu/x/cards=1"}, requested(served)); diff != "" {
		t.Errorf("a container whose GPUs were requested already (-want +got):\n%s", diff)
	}

	both := requesting(0, types.ResourceList{"gpu/a/cards": 1})
	container := both.RunningContainers["app"]
	container.DevRequests = types.ResourceList{"resource/group/nic/0/ports": 1}
	both.RunningContainers["app"] = container
	if err := newCluster(t).plugin.PodAllocate(types.NewNodeInfo(), both); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"gpugrp1/0/gpugrp0/0/gpu/a/cards=1", "nic/0/ports=1"}, requested(both)); diff != "" {
		t.Errorf("a container with another device (-want +got):\n%s", diff)
	}
}

// inTwoContainers is a pod whose two containers count n GPUs each.
func inTwoContainers(n int64) *types.PodInfo {
	pod := counting(n)
	pod.RunningContainers["second"] = counting(n).RunningContainers["app"]
	return pod
}

func TestErrorsNameMeaninglessRequests(t *testing.T) {
	tests := map[string]struct {
		pod  *types.PodInfo
		want string
	}{
		"more GPUs than the node has": {
			pod:  counting(5),
			want: `cannot serve container "app": too few GPUs for 5 of nvidia.com/gpu`,
		},
		"a number of GPUs beyond all measure": {
			pod:  counting(1 << 62),
			want: `cannot serve the pod: its containers count more than 1024 of nvidia.com/gpu: request fewer`,
		},
		"more GPUs in all containers than are written down one by one": {
			pod:  inTwoContainers(513),
			want: `cannot serve the pod: its containers count more than 1024 of nvidia.com/gpu: request fewer`,
		},
		"as many as are written down one by one, and more than the node has": {
			pod:  inTwoContainers(512),
			want: `cannot serve container "app": too few GPUs for 512 of nvidia.com/gpu`,
		},
		"a GPU of which nothing is held, so that it would be somebody else's": {
			pod:  requesting(1, types.ResourceList{"gpu/a/cards": 0}),
			want: `cannot serve container "app": resource/group/gpu/a/cards is 0: request at least 1`,
		},
		"a GPU of a kind, of which neither card nor memory is held": {
			pod: requesting(1, types.ResourceList{"gpu/a/enumType": 1, "gpu/b/cards": 1, "gpu/b/enumType": 1}),
			want: `cannot serve container "app": of resource/group/gpu/a neither cards nor memory is requested: ` +
				`request one of them`,
		},
		"all cores of a GPU, which is then not shared": {
			pod: requesting(0, types.ResourceList{"gpu/a/memory": 1, "gpu/a/cores": 100}),
			want: `cannot serve container "app": resource/group/gpu/a/cores is 100: request 1 to 99, or ` +
				`resource/group/gpu/a/cards for the whole GPU`,
		},
		"cores without memory": {
			pod: requesting(0, types.ResourceList{"gpu/a/cores": 10}),
			want: `cannot serve container "app": of resource/group/gpu/a neither cards nor memory is requested: ` +
				`request one of them`,
		},
		"a way of placing them that there is not": {
			pod: requesting(2, types.ResourceList{"gpu/gpu-generate-topology": 2}),
			want: `cannot serve container "app": gpu/gpu-generate-topology is 2: use 1 to require the best topology, ` +
				`0 for GPUs anywhere, or leave it out`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.add("n1", "ab cd")
			fits, reasons, _ := c.plugin.PodFitsDevice(c.nodes["n1"], test.pod.Clone(), false)
			if fits || len(reasons) != 1 || reasons[0].GetReason() != test.want {
				t.Errorf("got  %v %v\nwant %s", fits, reasons, test.want)
			}
			if err := c.plugin.PodAllocate(c.nodes["n1"], test.pod.Clone()); err == nil ||
				"cannot serve "+err.Error() != test.want {
				t.Errorf("PodAllocate = %v", err)
			}
		})
	}
}

func TestTooFewGPUsSaysWhetherTheyAreThereAndUnhealthy(t *testing.T) {
	c := newCluster(t)
	c.add("n1", "ab cd")
	for name := range c.nodes["n1"].Allocatable {
		if strings.Contains(string(name), "/gpu/a/") {
			delete(c.nodes["n1"].Allocatable, name)
		}
	}
	for count, want := range map[int64]string{
		4: `cannot serve container "app": too few GPUs for 4 of nvidia.com/gpu that are healthy and not tainted: ` +
			`3 of 4 are`,
		5: `cannot serve container "app": too few GPUs for 5 of nvidia.com/gpu`,
	} {
		_, reasons, _ := c.plugin.PodFitsDevice(c.nodes["n1"], counting(count), false)
		if len(reasons) != 1 || reasons[0].GetReason() != want {
			t.Errorf("got  %v\nwant %s", reasons, want)
		}
	}
}

// FuzzEveryRequestIsTranslatedTheSameWay also shows that the group scheduler takes the
// result, or says why not.
func FuzzEveryRequestIsTranslatedTheSameWay(f *testing.F) {
	f.Add("gpugrp0/A/gpu/a/cards", "resource/group/gpugrp0/A/gpu/a/cards", int64(2), int64(3))
	f.Add("gpu/gpu-generate-topology", "gpu/0/memory", int64(1), int64(2))
	f.Add("gpugrp1/0/gpugrp0/0/gpu/0/enumType", "gpugrp0/A/links", int64(6), int64(0))
	f.Add("gpu/a/b/cards", "/gpu//", int64(0), int64(-1))
	f.Add("nvidia.com/mig-1g.10gb", "gi/0/ci/0/mig-1g.10gb", int64(2), int64(0))
	f.Fuzz(func(t *testing.T, first, second string, quantity, count int64) {
		c := newCluster(t)
		c.add("n1", "ab cd")
		pod := requesting(count, types.ResourceList{types.ResourceName(first): quantity, types.ResourceName(second): 1})
		again := pod.Clone()
		fits, _, _ := c.plugin.PodFitsDevice(c.nodes["n1"], pod, false)
		if err := c.plugin.PodAllocate(c.nodes["n1"], again); (err == nil) != fits {
			t.Errorf("fits is %v, but PodAllocate says %v", fits, err)
		}
		if diff := cmp.Diff(requested(pod), requested(again)); fits && diff != "" {
			t.Errorf("two answers differ:\n%s", diff)
		}
		if request, err := grouptree.CompileRequest(pod, nil); err == nil && fits && count > 0 && request.Empty() {
			t.Errorf("%d GPUs are counted, none is requested", count)
		}
	})
}
