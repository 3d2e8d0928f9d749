// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// choosy prefers a GPU with memory to spare, and fits without.
type choosy struct {
	*translator
	calls  int
	panics bool
}

func newChoosy() *choosy { return &choosy{translator: &translator{fake: gpus()}} }

func (c *choosy) Preferring() devicescheduler.DeviceScheduler { return c }

func (c *choosy) Refine(_ *types.NodeInfo, pod *types.PodInfo) (float64, bool) {
	c.calls++
	if c.panics {
		panic("refine")
	}
	info := pod.RunningContainers["main"]
	if len(info.DevRequests) > 1 {
		return 0, false
	}
	resource.AddGroupResource(info.DevRequests, "gpu/0/memory", 60)
	return 0.5, true
}

func TestAPodGetsTheDevicesThatAPluginPrefersIfTheyAreFree(t *testing.T) {
	tests := map[string]struct {
		used, count int64
		quality     float64
		memory      bool
	}{
		"they are free":             {used: 40, count: 1, quality: 0.5, memory: true},
		"they are in use":           {used: 41, count: 1},
		"the pod does not care":     {used: 40, count: 2},
		"nothing that fits is free": {used: 40, count: 3},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			plugin := newChoosy()
			s := set(t, clock.RealClock{}, plugin)
			for range 2 { // the second answer is cached
				node := nodeLike(t, s, "n", 2, test.used)
				verdict, err := s.Fit(t.Context(), node, requestFor(test.count))
				if fits := test.count <= 2; err != nil || verdict.Fits != fits || verdict.Quality != test.quality {
					t.Fatalf("fits %v with quality %v, %v; want %v with %v", verdict.Fits, verdict.Quality, err, fits,
						test.quality)
				}
				if !verdict.Fits {
					continue
				}
				pod, err := s.Allocate(t.Context(), node, requestFor(test.count))
				if err != nil {
					t.Fatal(err)
				}
				memory := false
				for _, device := range pod.RunningContainers["main"].AllocateFrom {
					memory = memory || strings.HasSuffix(string(device), "/memory")
				}
				if memory != test.memory {
					t.Errorf("allocated %v", pod.RunningContainers["main"].AllocateFrom)
				}
			}
			if most := min(1, int(3-test.count)); plugin.calls != most {
				t.Errorf("Refine was called %d times, want %d", plugin.calls, most)
			}
		})
	}
}

func TestAClusterThatRequiresTopologyRefinesNothing(t *testing.T) {
	plugin := newChoosy()
	s := set(t, clock.RealClock{}, struct {
		*translator
		devicescheduler.Preferring
	}{plugin.translator, plugin})
	topology := TopologyPrefer
	if err := topology.Set("require"); err != nil {
		t.Fatal(err)
	}
	s.SetTopology(topology)
	verdict, err := s.Fit(t.Context(), nodeLike(t, s, "n", 1, 0), requestFor(1))
	if err != nil || !verdict.Fits || verdict.Quality != 0 || plugin.calls > 0 {
		t.Errorf("%+v, %v after %d calls of Refine", verdict, err, plugin.calls)
	}
	if err := topology.Set("closest"); err == nil || err.Error() != "must be one of prefer, require" {
		t.Errorf("a value that there is not: %v", err)
	}
}

func TestARefinementThatFailsIsAFailureOfThePlugin(t *testing.T) {
	plugin := newChoosy()
	plugin.panics = true
	s := set(t, clock.RealClock{}, plugin)
	_, err := s.Fit(t.Context(), nodeLike(t, s, "n", 1, 0), requestFor(1))
	if !errors.Is(err, pluginhost.ErrNoAnswer) {
		t.Errorf("error %v", err)
	}
}
