// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	plugin "github.com/kubedevice/kubedevice/plugins/gpu"
	gpuscheduler "github.com/kubedevice/kubedevice/plugins/gpu/scheduler"
)

// gpuPlugin is the scheduler plugin for GPUs, which serves the same resource as the kubelet GPUs of
// these tests.
func gpuPlugin() []allocation.Named {
	return []allocation.Named{{File: "gpus.so", Plugin: gpuscheduler.New("gpus", gpu)}}
}

// served returns the devices that serve a container, sorted.
func served(t *testing.T, r *fixture, request *request.Request) []types.ResourceName {
	t.Helper()
	if refusal := r.refusal(request); refusal != "" {
		t.Fatalf("the pod does not fit: nodes %s", refusal)
	}
	pod, err := r.set.Allocate(t.Context(), r.state(), request)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Values(pod.RunningContainers["main"].AllocateFrom))
}

func TestInventoryDecidesWhichPluginServesAResource(t *testing.T) {
	r := newFixtureWith(t, gpuPlugin(), "gpu 0 g0", "nic 0 n0")
	hostedHere := served(t, r, requestOf("p", spec{limits: list{gpu: 1, nic: 1}}))
	if diff := cmp.Diff([]types.ResourceName{deviceName(t, "gpu 0 g0"), deviceName(t, "nic 0 n0")},
		hostedHere); diff != "" {
		t.Errorf("where it is hosted (-want +got):\n%s", diff)
	}

	r.node = types.NewNodeInfoWithName("n2")
	plugin.Publish(r.node, gpu, []plugin.GPU{{ID: "GPU-1", Memory: 1 << 30, Groups: []int{0, 0}}})
	r.publish()
	fromPlugin := served(t, r, requestOf("p", spec{limits: list{gpu: 1}}))
	if len(fromPlugin) != 1 || !strings.HasSuffix(string(fromPlugin[0]), "/gpu/GPU-1/cards") {
		t.Errorf("where it is the plugin's, the pod got %v", fromPlugin)
	}
}

func TestOneContainerGetsPluginAndKubeletDevices(t *testing.T) {
	r := newFixtureWith(t, gpuPlugin(), "nic 0 n0", "nic 1 n1")
	plugin.Publish(r.node, gpu, []plugin.GPU{{ID: "GPU-1", Memory: 1 << 30, Groups: []int{0, 0}}})
	r.publish()
	got := served(t, r, requestOf("p", spec{limits: list{gpu: 1},
		requests: list{"numa/A/vendor.example:nic/=n1/device": 1}}))
	if len(got) != 2 || got[1] != deviceName(t, "nic 1 n1") {
		t.Errorf("the pod got %v", got)
	}
	if got := r.refusal(requestOf("p", spec{limits: list{gpu: 2, nic: 1}})); got == "" {
		t.Error("a pod fits that requests more than the plugin has")
	}
}

// loner is a plugin that places by itself and accounts for what it placed.
type loner struct {
	devicescheduler.DeviceScheduler
}

const lonely types.ResourceName = "vendor.example/loner"

func (loner) AddNode(string, *types.NodeInfo) {}
func (loner) GetName() string                 { return "loner" }
func (loner) UsingGroupScheduler() bool       { return false }

func (loner) PodFitsDevice(_ *types.NodeInfo, pod *types.PodInfo, _ bool) (bool,
	[]devicescheduler.PredicateFailureReason, float64) {
	for name, info := range pod.RunningContainers {
		if info.KubeRequests[lonely] > 0 {
			types.FillContainerInfo(&info)
			info.DevRequests[lonely], info.AllocateFrom[lonely] = 1, lonely
			pod.RunningContainers[name] = info
		}
	}
	return true, nil, 0.75
}

func (l loner) PodAllocate(node *types.NodeInfo, pod *types.PodInfo) error {
	l.PodFitsDevice(node, pod, true)
	return nil
}

func (loner) TakePodResources(node *types.NodeInfo, _ *types.PodInfo) error {
	node.Used[lonely]++
	return nil
}

func TestNodeWithoutKubeletDevicesKeepsThePluginsScore(t *testing.T) {
	r := newFixtureWith(t, []allocation.Named{{File: "loner.so", Plugin: loner{}}})
	made := requestOf("p", spec{limits: list{lonely: 1}})
	if verdict := r.fit(made); !verdict.Fits || verdict.Score != 0.75 {
		t.Errorf("verdict %+v, want the plugin's own score of 0.75", verdict)
	}
	r.run(made)
	if resources := r.state().Resources(); len(resources) > 0 {
		t.Errorf("the group scheduler accounts for %v", resources)
	}
}

func TestAccountsForKubeletDevicesNextToASelfPlacingPlugin(t *testing.T) {
	r := newFixtureWith(t, []allocation.Named{{File: "loner.so", Plugin: loner{}}}, "qat 0 q0", "qat 1 q1")
	for i, want := range []string{"qat 0 q0", "qat 1 q1"} {
		got := r.run(requestOf(fmt.Sprint("p", i), spec{limits: list{lonely: 1, qat: 1}}))
		if got["main"] != want {
			t.Errorf("pod %d got %q, want %q", i, got["main"], want)
		}
	}
	if got, want := r.refusal(requestOf("late", spec{limits: list{lonely: 1, qat: 1}})),
		"have no free intel.com/qat"; got != want {
		t.Errorf("nodes %s, want: %s", got, want)
	}
}

func TestOneNUMANodeScoresHigherThanTwo(t *testing.T) {
	made := requestOf("p", spec{limits: list{gpu: 2}})
	score := func(devices ...string) float64 { return newFixture(t, devices...).fit(made).Score }
	together, torn := score("gpu 0 a", "gpu 0 b", "gpu 1 c"), score("gpu 0 a", "gpu 1 b", "gpu 2 c")
	broken := score("gpu 0 a", "gpu 0 b", "gpu 0 c")
	if together <= torn || together <= broken {
		t.Errorf("scores: %v from one NUMA node, %v from two, %v from a larger group", together, torn, broken)
	}
}
