// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"github.com/kubedevice/kubedevice/plugins/gpu"
)

// partition adds a node from a drawing: for each GPU a word, "." for one that is whole, and for one
// that is partitioned a letter for each instance, of the profile that resources has for it. The
// instances are called by GPU and position: A0, A1, B0.
func (c *cluster) partition(name, drawing string, resources map[rune]string) {
	var gpus []gpu.GPU
	for i, word := range strings.Fields(drawing) {
		g := gpu.GPU{ID: string(rune('A' + i)), Memory: 16 << 30, Groups: []int{i, 0}}
		if word != "." {
			g.Partitioned = true
			for j, letter := range word {
				g.Instances = append(g.Instances, gpu.Instance{
					ID: fmt.Sprint(g.ID, j), GPUInstance: j, Resource: resources[letter],
				})
			}
		}
		gpus = append(gpus, g)
	}
	node := types.NewNodeInfoWithName(name)
	gpu.Publish(node, gpu.Resource, gpus)
	c.addInfo(node)
}

// mixed are resources of the strategy mixed, single of the strategy single.
var (
	mixed  = map[rune]string{'1': "mig-1g.10gb", '3': "mig-3g.40gb"}
	single = map[rune]string{'1': gpu.Cards}
)

// profiles is a pod whose container counts n instances of a profile in its limits, and writes
// requests.
func profiles(n int64, profile string, requests types.ResourceList) *types.PodInfo {
	pod := requesting(0, requests)
	pod.RunningContainers["app"].KubeRequests[gpu.PlainCount(gpu.ProfileResource(profile))] = n
	return pod
}

func TestInstancesAreRequestedByProfile(t *testing.T) {
	for name, test := range map[string]struct {
		pod  *types.PodInfo
		want []string
	}{
		"two instances may be of any GPUs": {
			pod: profiles(2, "1g.10gb", nil),
			want: []string{"gpugrp1/0/gpugrp0/0/gpu/0/gi/0/ci/0/mig-1g.10gb=1",
				"gpugrp1/1/gpugrp0/1/gpu/1/gi/0/ci/0/mig-1g.10gb=1"},
		},
		"a count in the annotation counts like one in the limits": {
			pod:  requesting(0, types.ResourceList{"nvidia.com/mig-1g.10gb": 1}),
			want: []string{"gpugrp1/0/gpugrp0/0/gpu/0/gi/0/ci/0/mig-1g.10gb=1"},
		},
		"what is written is kept, and counts": {
			pod: profiles(2, "1g.10gb", types.ResourceList{"gpu/0/gi/a/ci/a/mig-1g.10gb": 1}),
			want: []string{"gpugrp1/0/gpugrp0/0/gpu/0/gi/a/ci/a/mig-1g.10gb=1",
				"gpugrp1/1/gpugrp0/1/gpu/1/gi/0/ci/0/mig-1g.10gb=1"},
		},
		"an instance may be written without its GPU": {
			pod:  requesting(0, types.ResourceList{"ci/x/mig-3g.40gb": 1}),
			want: []string{"gpugrp1/0/gpugrp0/0/gpu/0/gi/0/ci/x/mig-3g.40gb=1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.partition("n1", "11 13 .", mixed)
			if err := c.plugin.PodAllocate(c.nodes["n1"], test.pod); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, requested(test.pod)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestInstancesArePacked(t *testing.T) {
	c := newCluster(t)
	c.partition("n1", "1113 1113 .", mixed)
	var got []string
	place := func(pod *types.PodInfo) {
		instances, reason := c.place("n1", pod)
		got = append(got, instances+reason)
	}
	place(profiles(1, "3g.40gb", nil))
	for range 3 {
		place(profiles(1, "1g.10gb", nil))
	}
	gpuOfFirst := got[0][:1]
	for _, instance := range got[1:] {
		if instance[:1] != gpuOfFirst {
			t.Errorf("got %v: an instance of an idle GPU while one that is in use has some", got)
		}
	}
	sorted := slices.Clone(got)
	slices.Sort(sorted)
	if len(slices.Compact(sorted)) != 4 {
		t.Errorf("got %v: an instance twice", got)
	}
	if gpus, reason := c.place("n1", counting(1)); gpus != "C" {
		t.Errorf("a whole GPU: %q, %s", gpus, reason)
	}
	if gpus, _ := c.place("n1", counting(1)); gpus != "" {
		t.Errorf("a partitioned GPU was given whole: %q", gpus)
	}
}

func TestInstancesOfOneGPUCanBeRequested(t *testing.T) {
	c := newCluster(t)
	c.partition("n1", "1 113 1", mixed)
	pod := requesting(0, types.ResourceList{
		"gpu/a/gi/0/ci/0/mig-1g.10gb": 1, "gpu/a/gi/1/ci/0/mig-1g.10gb": 1, "gpu/a/gi/2/ci/0/mig-3g.40gb": 1,
	})
	if instances, reason := c.place("n1", pod); instances != "B0B1B2" {
		t.Errorf("%q, %s", instances, reason)
	}
}

func TestInstancesInThePlaceOfGPUs(t *testing.T) {
	c := newCluster(t)
	c.partition("single", "11 1", single)
	if instances, reason := c.place("single", counting(2)); len(instances) != 4 {
		t.Errorf("two of three instances, while no node has GPUs: %q, %s", instances, reason)
	}
	c.add("whole", "ab")
	if instances, reason := c.place("single", counting(1)); len(instances) != 2 {
		t.Errorf("one instance: %q, %s", instances, reason)
	}
	c.holders["single"] = nil
	instances, reason := c.place("single", counting(2))
	if instances != "" || !strings.Contains(reason, "MIG instances are not connected: for 2 of "+string(gpu.Resource)) {
		t.Errorf("two instances, while a node has two GPUs: %q, %s", instances, reason)
	}
	anywhere := requesting(2, types.ResourceList{generateTopology: 0})
	if instances, reason := c.place("single", anywhere); len(instances) != 4 {
		t.Errorf("two instances without topology: %q, %s", instances, reason)
	}
	c.holders["single"] = nil
	c.after = true
	if instances, reason := c.place("single", counting(2)); len(instances) != 4 {
		t.Errorf("two instances after a wait: %q, %s", instances, reason)
	}
}

func TestErrorsNameMissingInstances(t *testing.T) {
	for name, test := range map[string]struct {
		pod  *types.PodInfo
		want string
	}{
		"a profile that the node has not": {
			pod:  profiles(1, "7g.80gb", nil),
			want: `cannot serve container "app": too few MIG instances for nvidia.com/mig-7g.80gb`,
		},
		"more than the node has": {
			pod:  profiles(4, "1g.10gb", nil),
			want: `cannot serve container "app": too few MIG instances for nvidia.com/mig-1g.10gb`,
		},
		"a number beyond all measure": {
			pod: profiles(1<<62, "1g.10gb", nil),
			want: `cannot serve the pod: its containers count more than 1024 of nvidia.com/mig-1g.10gb: ` +
				`request fewer`,
		},
		"a GPU, where all are partitioned": {
			pod:  counting(1),
			want: `cannot serve container "app": too few GPUs for 1 of nvidia.com/gpu`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.partition("n1", "11 13", mixed)
			if instances, reason := c.place("n1", test.pod); reason != test.want {
				t.Errorf("got  %q, %s\nwant %s", instances, reason, test.want)
			}
		})
	}
}

func TestAllCountsOfInstancesAreClaimed(t *testing.T) {
	claimed := New("nvidiagpu", gpu.Resource).ClaimedResources()
	for _, want := range []types.ResourceName{
		"nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-1g.10gb.me", "nvidia.com/mig-1c.3g.40gb",
	} {
		if !slices.Contains(claimed, want) {
			t.Errorf("%s is not claimed", want)
		}
	}
	for _, plain := range claimed[1:] {
		if resource, ok := gpu.CountedInstance(plain); !ok || gpu.PlainCount(resource) != plain {
			t.Errorf("CountedInstance(%s) = %s, %v", plain, resource, ok)
		}
	}
}
