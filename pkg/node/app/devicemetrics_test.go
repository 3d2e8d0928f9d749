// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/node/podresources"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// gpuPath is the only resource of a GPU.
func gpuPath(id string) types.ResourceName {
	return types.ResourceName("resource/group/gpu/" + id + "/cards")
}

// gpuNames publishes every device as example.com/gpu.
type gpuNames struct{}

func (gpuNames) ExtendedOf(types.ResourceName) (types.ResourceName, bool) {
	return "example.com/gpu", true
}

// fixedDevices are devices that do not change.
type fixedDevices deviceState

func (d fixedDevices) state() deviceState { return deviceState(d) }

// fixedGrants are grants that do not change.
type fixedGrants []grants.Allocation

func (g fixedGrants) List() []grants.Allocation { return g }

// fixedShares are policed for some pods, by UID, and counted for others.
type fixedShares map[string]bool

func (s fixedShares) Of(_ types.ResourceName, podUID string) deviceinfo.Enforcement {
	if s[podUID] {
		return deviceinfo.Policed
	}
	return deviceinfo.Counted
}

// twoGPUs has a healthy GPU and one that is not.
func twoGPUs() deviceState {
	node := types.NewNodeInfoWithName("node-1")
	node.KubeCap, node.KubeAlloc = types.ResourceList{"example.com/gpu": 2}, types.ResourceList{"example.com/gpu": 1}
	node.Capacity = types.ResourceList{gpuPath("GPU-0"): 1, gpuPath("GPU-1"): 1, "example.com/gpu": 2}
	node.Allocatable = types.ResourceList{gpuPath("GPU-0"): 1, gpuPath("GPU-1"): 0, "example.com/gpu": 1}
	devices := podresources.Devices{
		Allocatable: node.Allocatable,
		Names:       gpuNames{},
	}
	lost := plugins.Health{Health: device.Health{Reason: "Lost"}, Name: gpuPath("GPU-1")}
	return deviceState{node: node, devices: devices, unhealthy: []plugins.Health{lost}}
}

// holderOf returns the allocation of a pod whose only container holds a GPU.
func holderOf(uid, pod, gpu string, init bool) grants.Allocation {
	containers := map[string]types.ContainerInfo{"main": {
		AllocateFrom: types.ResourceLocation{"resource/group/gpu/a/cards": gpuPath(gpu)},
	}}
	info := &types.PodInfo{RunningContainers: containers}
	if init {
		info = &types.PodInfo{InitContainers: containers}
	}
	return grants.Allocation{PodUID: uid, Namespace: "team", Name: pod, PodInfo: info}
}

func TestEachDeviceHasItsHealthAndItsHolders(t *testing.T) {
	for name, test := range map[string]struct {
		granted []grants.Allocation
		limit   int
		want    string
	}{
		"a holder": {
			[]grants.Allocation{holderOf("1", "train", "GPU-0", false)}, 2, `
kubecri_device_healthy{device="GPU-0",resource="example.com/gpu"} 1
kubecri_device_healthy{device="GPU-1",resource="example.com/gpu"} 0
kubecri_device_held{container="main",device="GPU-0",namespace="team",pod="train",resource="example.com/gpu"} 1
kubecri_device_series_left_out 0
kubecri_device_unhealthy{device="GPU-1",reason="Lost",resource="example.com/gpu"} 1`,
		},
		"several of one device, one of them an init container, and two pods of one name": {
			[]grants.Allocation{
				holderOf("1", "a", "GPU-1", true),
				holderOf("2", "b", "GPU-1", false), holderOf("3", "b", "GPU-1", false),
			}, 2, `
kubecri_device_healthy{device="GPU-0",resource="example.com/gpu"} 1
kubecri_device_healthy{device="GPU-1",resource="example.com/gpu"} 0
kubecri_device_held{container="main",device="GPU-1",namespace="team",pod="a",resource="example.com/gpu"} 1
kubecri_device_held{container="main",device="GPU-1",namespace="team",pod="b",resource="example.com/gpu"} 1
kubecri_device_series_left_out 0
kubecri_device_unhealthy{device="GPU-1",reason="Lost",resource="example.com/gpu"} 1`,
		},
		"more devices than series": {
			[]grants.Allocation{holderOf("1", "a", "GPU-1", false)}, 1, `
kubecri_device_healthy{device="GPU-0",resource="example.com/gpu"} 1
kubecri_device_series_left_out 1`,
		},
		"no series": {
			[]grants.Allocation{holderOf("1", "a", "GPU-1", false)}, 0, `
kubecri_device_series_left_out 2`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			registry := metrics.NewKubeRegistry()
			registry.CustomMustRegister(newDeviceMetrics(fixedDevices(twoGPUs()),
				fixedGrants(test.granted), fixedShares{}, test.limit))
			if err := testutil.GatherAndCompare(registry, strings.NewReader(described(test.want)),
				"kubecri_device_healthy", "kubecri_device_held", "kubecri_device_series_left_out",
				"kubecri_device_unhealthy"); err != nil {
				t.Error(err)
			}
		})
	}
}

// tainted returns twoGPUs with taints of both.
func tainted() deviceState {
	state := twoGPUs()
	state.taints = []deviceinfo.DeviceTaint{
		{Device: "gpu/GPU-0", Key: deviceinfo.CordonKey, Effect: "NoSchedule"},
		{Device: "gpu/GPU-1", Key: "team", Value: "a", Effect: "NoExecute"},
		{Device: "gpu/GPU-9", Key: "team", Value: "a", Effect: "NoExecute"}, // which is not there any more
	}
	return state
}

func TestEachTaintOfADeviceHasASeries(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	registry.CustomMustRegister(newDeviceMetrics(fixedDevices(tainted()), fixedGrants(nil), fixedShares{}, 2))
	const device = `kubecri_device_tainted{device="GPU-%d",effect=%q,key=%q,resource="example.com/gpu"} 1` + "\n"
	want := fmt.Sprintf(device, 0, "NoSchedule", deviceinfo.CordonKey) + fmt.Sprintf(device, 1, "NoExecute", "team")
	if err := testutil.GatherAndCompare(registry, strings.NewReader(described(want)),
		"kubecri_device_tainted"); err != nil {
		t.Error(err)
	}
}

func TestEachContainerHasWhatHoldsItToItsDevices(t *testing.T) {
	const memory = types.ResourceName("resource/group/gpu/GPU-0/memory")
	state := twoGPUs()
	state.node.Capacity[memory] = 100
	allocation := func(pod string, of types.ResourceList) grants.Allocation {
		granted := holderOf("uid-"+pod, pod, "GPU-0", false)
		main := types.ContainerInfo{DevRequests: types.ResourceList{}, AllocateFrom: types.ResourceLocation{}}
		for name, quantity := range of {
			main.DevRequests[name], main.AllocateFrom[name] = quantity, name
		}
		granted.PodInfo.RunningContainers["main"] = main
		return granted
	}
	registry := metrics.NewKubeRegistry()
	registry.CustomMustRegister(newDeviceMetrics(fixedDevices(state), fixedGrants{
		allocation("whole", types.ResourceList{gpuPath("GPU-0"): 1}),
		allocation("with-memory", types.ResourceList{gpuPath("GPU-0"): 1, memory: 50}),
		allocation("all", types.ResourceList{memory: 100}),
		allocation("policed", types.ResourceList{memory: 40}), allocation("counted", types.ResourceList{memory: 40}),
		allocation("regrouped", types.ResourceList{"resource/group/grp/7/gpu/GPU-0/memory": 40}),
	}, fixedShares{"uid-policed": true}, 2))
	want := ""
	for _, entry := range []string{"all hardware", "counted counted", "policed policed", "regrouped counted",
		"whole hardware", "with-memory hardware"} {
		pod, enforcement, _ := strings.Cut(entry, " ")
		want += fmt.Sprintf("kubecri_device_container_enforcement{container=\"main\",device=\"GPU-0\",enforcement=%q,"+
			"namespace=\"team\",pod=%q,resource=\"example.com/gpu\"} 1\n", enforcement, pod)
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(described(want)),
		"kubecri_device_container_enforcement"); err != nil {
		t.Error(err)
	}
}

// described returns series with the lines before them that say what they are.
func described(series string) string {
	help := map[string]string{
		"kubecri_device_healthy": "1 for each device that can be allocated to pods, 0 for each that its plugin " +
			"reports as unhealthy.",
		"kubecri_device_held": "1 for each device and container that holds it.",
		"kubecri_device_container_enforcement": "1 for each device and container that holds it or a share of it, " +
			"with what holds the container to that: hardware, policed, library or counted.",
		"kubecri_device_unhealthy": "1 for each device that cannot be allocated to pods, with the reason that its " +
			"plugin reports.",
		"kubecri_device_tainted":         "1 for each taint that administrators gave a device.",
		"kubecri_device_series_left_out": "Devices without series of their own: there are too many.",
	}
	var text strings.Builder
	said := map[string]bool{}
	for line := range strings.Lines(strings.TrimSpace(series) + "\n") {
		name := line[:strings.IndexAny(line, "{ ")]
		if !said[name] {
			fmt.Fprintf(&text, "# HELP %s [ALPHA] %s\n# TYPE %s gauge\n", name, help[name], name)
		}
		said[name] = true
		text.WriteString(line)
	}
	return text.String()
}
