// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/sdk/utils"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/mig"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
)

// hopper is a machine with two H100.
func hopper() nvmltest.Machine {
	return nvmltest.Machine{
		Ancestor: nvmltest.Matrix(2, func(_, _ int) int { return phb }), Model: mig.H100With80GB(),
	}
}

// configured starts the GPUs of a fake library with a configuration.
func configured(t *testing.T, library nvmltest.Library, configuration string) *Device {
	t.Helper()
	paths := Paths{
		NVML: library.Path, Faults: filepath.Join(t.TempDir(), "faults"),
		Config: filepath.Join(t.TempDir(), "config"), Minors: filepath.Join(t.TempDir(), "minors"),
	}
	if configuration != "" {
		if err := os.WriteFile(paths.Config, []byte(configuration), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return startedAt(t, paths)
}

func TestTheStrategiesAreLoggedOnceAtTheStart(t *testing.T) {
	library := nvmltest.Build(t, pairs4())
	var lines []string
	log := utils.Logf
	t.Cleanup(func() { utils.Logf = log })
	utils.Logf = func(_ int, format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	d := configured(t, library, "flags: {migStrategy: mixed, plugin: {deviceListStrategy: cdi-cri}}")
	update(t, d)
	want := []string{"NVIDIA GPUs are offered with migStrategy mixed, deviceListStrategy cdi-cri, passDeviceSpecs " +
		"false, 0 migLayouts (" + d.paths.Config + ")"}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("logged (-want +got):\n%s", diff)
	}
}

// devices returns the devices of a node by their names below the close group, and their resource,
// except memory and cores.
func devices(list types.ResourceList) map[string]string {
	found := map[string]string{}
	for name := range list {
		_, device, ok := strings.Cut(string(name), "/gpugrp0/")
		at := strings.LastIndexByte(device, '/')
		if ok && device[at+1:] != "memory" && device[at+1:] != "cores" {
			_, device, _ := strings.Cut(device[:at], "/")
			found[device] = string(name[strings.LastIndexByte(string(name), '/')+1:])
		}
	}
	return found
}

// instance is the name of an instance of GPU 0 or 1 below the close group.
func instance(number, gi, ci int) string {
	return fmt.Sprintf("gpu/%s/gi/%d/ci/%s", nvmltest.UUID(number), gi, nvmltest.InstanceUUID(number, gi, ci))
}

func TestPartitionedGPUsAreOfferedByTheStrategy(t *testing.T) {
	type layout = map[int][]nvmltest.Part
	library := nvmltest.Build(t, hopper())
	one := func(profile string, start int) nvmltest.Part { return library.At(profile, start) }
	shared := one("3g.40gb", 4)
	shared.Compute = []int{1, 2}
	whole := func(number int) string { return "gpu/" + nvmltest.UUID(number) }
	for name, test := range map[string]struct {
		strategy string
		layout   layout
		want     map[string]string
		counts   types.ResourceList
	}{
		"without a file instances are counted by profile": {
			layout: layout{1: {one("1g.10gb", 0), one("1g.10gb+me", 2), shared}},
			want: map[string]string{
				whole(0): "cards", instance(1, 1, 0): "mig-1g.10gb", instance(1, 2, 0): "mig-1g.10gb.me",
				instance(1, 3, 0): "mig-1c.3g.40gb", instance(1, 3, 1): "mig-2c.3g.40gb",
			},
			counts: types.ResourceList{"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 1, "nvidia.com/mig-1g.10gb.me": 1,
				"nvidia.com/mig-1c.3g.40gb": 1, "nvidia.com/mig-2c.3g.40gb": 1},
		},
		"mixed: a GPU without instances is not offered": {
			strategy: "mixed", layout: layout{0: {}},
			want: map[string]string{whole(1): "cards"}, counts: types.ResourceList{"nvidia.com/gpu": 1},
		},
		"none: a partitioned GPU is not offered": {
			strategy: "none", layout: layout{0: {one("7g.80gb", 0)}},
			want: map[string]string{whole(1): "cards"}, counts: types.ResourceList{"nvidia.com/gpu": 1},
		},
		"single: no GPU is partitioned": {
			strategy: "single", want: map[string]string{whole(0): "cards", whole(1): "cards"},
			counts: types.ResourceList{"nvidia.com/gpu": 2},
		},
		"single: instances take the place of GPUs": {
			strategy: "single", layout: layout{0: {one("3g.40gb", 0), one("3g.40gb", 4)}, 1: {one("3g.40gb", 4)}},
			want: map[string]string{instance(0, 1, 0): "cards", instance(0, 2, 0): "cards",
				instance(1, 1, 0): "cards"},
			counts: types.ResourceList{"nvidia.com/gpu": 3},
		},
	} {
		t.Run(name, func(t *testing.T) {
			library.Partition(t, test.layout)
			configuration := ""
			if test.strategy != "" {
				configuration = "flags: {migStrategy: " + test.strategy + "}"
			}
			info := update(t, configured(t, library, configuration))
			if diff := cmp.Diff(test.want, devices(info.Allocatable)); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.counts, info.KubeAlloc); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
		})
	}
}

// An administrator partitions one GPU after the other. Until all are alike, what was counted is
// counted on, and pods keep what they hold.
func TestCountsAreKeptUntilAllGPUsArePartitionedAlike(t *testing.T) {
	library := nvmltest.Build(t, hopper())
	uniform := map[int][]nvmltest.Part{0: {library.At("3g.40gb", 0)}, 1: {library.At("3g.40gb", 4)}}
	large, small := instance(0, 1, 0), instance(1, 1, 0)
	whole := "gpu/" + nvmltest.UUID(1)
	other := []nvmltest.Part{library.At("1g.10gb", 0)}
	for name, test := range map[string]struct {
		layout   map[int][]nvmltest.Part
		held     []string
		complete bool
		want     []string
		problem  string
	}{
		"one of two is whole again": {
			map[int][]nvmltest.Part{0: uniform[0]}, nil, true, []string{large},
			"there are whole GPUs and instances of 3g.40gb, and flags.migStrategy is single",
		},
		"a pod holds the one that is whole": {
			map[int][]nvmltest.Part{0: uniform[0]}, []string{whole}, true, []string{large, whole},
			"only instances of 3g.40gb",
		},
		"one has another profile": {
			map[int][]nvmltest.Part{0: uniform[0], 1: other}, nil, true, []string{large},
			"there are instances of 1g.10gb and instances of 3g.40gb",
		},
		"one that a pod holds has another profile": {
			map[int][]nvmltest.Part{0: uniform[0], 1: other}, []string{small}, true, []string{large, small},
			"only instances of 3g.40gb",
		},
		"the holders are not known": {
			map[int][]nvmltest.Part{0: uniform[0], 1: other}, nil, false, []string{large}, "only instances of 3g.40gb",
		},
		"one has no instance": {
			map[int][]nvmltest.Part{0: uniform[0], 1: {}}, nil, true, []string{large},
			"GPU " + nvmltest.UUID(1) + " is partitioned and has no instance",
		},
		"all have the other profile": {
			map[int][]nvmltest.Part{0: other, 1: other}, nil, true, []string{instance(0, 1, 0), small}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			library.Partition(t, uniform)
			d := configured(t, library, "flags: {migStrategy: single}")
			d.SetHeld(nil, true)
			update(t, d)
			library.Partition(t, test.layout)
			d.SetHeld(test.held, test.complete)
			info := update(t, d)
			if diff := cmp.Diff(test.want, slices.Sorted(maps.Keys(devices(info.Allocatable)))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := info.KubeAlloc["nvidia.com/gpu"]; got != int64(len(test.want)) {
				t.Errorf("%d are counted", got)
			}
			if !strings.Contains(d.problems, test.problem) || (test.problem == "") != (d.problems == "") {
				t.Errorf("problems: %q, want %q", d.problems, test.problem)
			}
		})
	}
	t.Run("after a restart", func(t *testing.T) {
		library.Partition(t, map[int][]nvmltest.Part{0: {library.At("3g.40gb", 0), library.At("3g.40gb", 4)}, 1: other})
		d := configured(t, library, "flags: {migStrategy: single}")
		d.SetHeld(nil, false)
		info := update(t, d)
		if offered, there := len(devices(info.Allocatable)), len(devices(info.Capacity)); offered != 2 || there != 3 {
			t.Errorf("before it is known who holds what, %d of %d are offered", offered, there)
		}
		d.SetHeld([]string{small}, true)
		if diff := cmp.Diff(map[string]string{small: "cards"}, devices(update(t, d).Allocatable)); diff != "" {
			t.Errorf("what pods hold most of is counted (-want +got):\n%s", diff)
		}
	})
	t.Run("a GPU fails meanwhile", func(t *testing.T) {
		library.Partition(t, uniform)
		d := configured(t, library, "flags: {migStrategy: single}")
		d.SetHeld(nil, true)
		update(t, d)
		library.Partition(t, map[int][]nvmltest.Part{0: uniform[0], 1: other})
		library.Break(t, 0, 79)
		if info := update(t, d); info.KubeAlloc["nvidia.com/gpu"] != 0 {
			t.Errorf("the instance of a GPU that has failed is offered: %v", info.KubeAlloc)
		}
		library.Repair(t)
	})
}

func TestAWrongConfigurationOffersNothingAndSaysWhy(t *testing.T) {
	paths := Paths{NVML: nvmltest.Build(t, hopper()).Path, Config: filepath.Join(t.TempDir(), "config")}
	if err := os.WriteFile(paths.Config, []byte("flags: {migStrategy: all}"), 0o644); err != nil {
		t.Fatal(err)
	}
	d := New(paths)
	if err := d.Start(); err == nil || !strings.Contains(err.Error(), `flags.migStrategy is "all"`) {
		t.Errorf("Start = %v", err)
	}
	if err := os.WriteFile(paths.Config, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := d.Start(); err != nil {
		t.Errorf("with a right one: %v", err)
	}
}

// allocated is a container that was allocated devices by their names below the close group.
func allocated(names ...string) *types.ContainerInfo {
	container := types.NewContainerInfo()
	for i, name := range names {
		request := types.ResourceName(fmt.Sprintf("resource/group/gpugrp1/%d/gpugrp0/0/%s/x", i, name))
		container.AllocateFrom[request] = "resource/group/gpugrp1/0/gpugrp0/0/" + types.ResourceName(name) + "/x"
	}
	return container
}

func TestAContainerGetsExactlyItsInstances(t *testing.T) {
	library := nvmltest.Build(t, hopper())
	library.Partition(t, map[int][]nvmltest.Part{1: {library.At("1g.10gb", 0), library.At("3g.40gb", 4)}})
	first, second := nvmltest.InstanceUUID(1, 1, 0), nvmltest.InstanceUUID(1, 2, 0)
	minors := "config 1\nmonitor 2\ngpu1/gi1/access 30\ngpu1/gi1/ci0/access 31\ngpu1/gi2/access 39\n" +
		"gpu1/gi2/ci0/access 40\n"
	type result struct {
		mounts []device.Mount
		nodes  []string
		envs   map[string]string
	}
	for name, test := range map[string]struct {
		configuration string
		container     *types.ContainerInfo
		want          result
	}{
		"by the variable": {
			container: allocated(instance(1, 2, 0)), want: result{envs: map[string]string{VisibleDevices: second}},
		},
		"two of them, and a GPU": {
			container: allocated(instance(1, 2, 0), "gpu/"+nvmltest.UUID(0), instance(1, 1, 0)),
			want:      result{envs: map[string]string{VisibleDevices: nvmltest.UUID(0) + "," + first + "," + second}},
		},
		"by mounts": {
			configuration: "flags: {migStrategy: mixed, plugin: {deviceListStrategy: volume-mounts}}",
			container:     allocated(instance(1, 1, 0)),
			want: result{
				envs: map[string]string{VisibleDevices: "/var/run/nvidia-container-devices"},
				mounts: []device.Mount{
					{HostPath: "/dev/null", ContainerPath: "/var/run/nvidia-container-devices/" + first},
				},
			},
		},
		"with device nodes": {
			configuration: "flags: {migStrategy: mixed, plugin: {passDeviceSpecs: true}}",
			container:     allocated(instance(1, 2, 0)),
			want: result{
				envs: map[string]string{VisibleDevices: second},
				nodes: []string{"/dev/nvidia-caps/nvidia-cap39", "/dev/nvidia-caps/nvidia-cap40",
					"/dev/nvidia1"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := configured(t, library, test.configuration)
			if err := os.WriteFile(d.paths.Minors, []byte(minors), 0o644); err != nil {
				t.Fatal(err)
			}
			update(t, d)
			mounts, nodes, envs, err := d.Allocate(types.NewPodInfo(), test.container)
			nodes = slices.DeleteFunc(nodes, func(n string) bool { return slices.Contains(controlNodes, n) })
			got := result{mounts: mounts, nodes: nodes, envs: envs}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(result{})); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestCDIDevicesAreThoseOfTheAllocatedGPUsAndInstances(t *testing.T) {
	library := nvmltest.Build(t, hopper())
	library.Partition(t, map[int][]nvmltest.Part{1: {library.At("1g.10gb", 0)}})
	whole, part := nvmltest.UUID(0), nvmltest.InstanceUUID(1, 1, 0)
	both := []string{"nvidia.com/gpu=" + whole, "nvidia.com/gpu=" + part}
	for strategy, want := range map[string]device.Allocation{
		"cdi-cri":           {Envs: map[string]string{VisibleDevices: "void"}, CDIDevices: both},
		"[cdi-cri, envvar]": {Envs: map[string]string{VisibleDevices: whole + "," + part}, CDIDevices: both},
		"envvar":            {Envs: map[string]string{VisibleDevices: whole + "," + part}},
		"volume-mounts": {
			Envs: map[string]string{VisibleDevices: "/var/run/nvidia-container-devices"},
			Mounts: []device.HostMount{
				{HostPath: "/dev/null", ContainerPath: "/var/run/nvidia-container-devices/" + whole},
				{HostPath: "/dev/null", ContainerPath: "/var/run/nvidia-container-devices/" + part},
			},
		},
	} {
		d := configured(t, library, "flags: {migStrategy: mixed, plugin: {deviceListStrategy: "+strategy+"}}")
		update(t, d)
		got, err := d.AllocateContainer(types.NewPodInfo(), allocated("gpu/"+whole, instance(1, 1, 0)))
		if diff := cmp.Diff(&want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", strategy, err, diff)
		}
		if none, err := d.AllocateContainer(types.NewPodInfo(), allocated()); none != nil || err != nil {
			t.Errorf("%s: a container without GPUs gets %v, %v", strategy, none, err)
		}
	}
}

func TestADestroyedInstanceIsNotAllocated(t *testing.T) {
	library := nvmltest.Build(t, hopper())
	library.Partition(t, map[int][]nvmltest.Part{1: {library.At("1g.10gb", 0)}})
	d := configured(t, library, "flags: {migStrategy: mixed, plugin: {passDeviceSpecs: true}}")
	update(t, d)
	refused := func(what, device, want string) {
		t.Helper()
		_, _, _, err := d.Allocate(types.NewPodInfo(), allocated(device))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("a GPU that has been partitioned", "gpu/"+nvmltest.UUID(1), "has been partitioned since it was allocated")
	refused("an instance of elsewhere", instance(0, 1, 0), "this node has no MIG instance")
	refused("an instance without a device node", instance(1, 1, 0), "minors: no such file")
	if err := os.WriteFile(d.paths.Minors, []byte("gpu1/gi1/access 30\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	refused("an instance without its own device node", instance(1, 1, 0), "no device node for gpu1/gi1/ci0/access")
	library.Partition(t, nil)
	update(t, d)
	refused("an instance of a GPU that is whole again", instance(1, 1, 0), "this node has no MIG instance")
	if _, _, envs, err := d.Allocate(types.NewPodInfo(), allocated("gpu/"+nvmltest.UUID(1))); err != nil {
		t.Errorf("a GPU that is whole again: %v, %v", envs, err)
	}
}

// unhealthy returns the reason of each unhealthy device by its name below the close group. It fails
// the test unless exactly the others are allocatable.
func unhealthy(t *testing.T, d *Device) map[string]string {
	t.Helper()
	info := update(t, d)
	list, err := d.DeviceHealth()
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]string{}
	for _, h := range list {
		if !h.Healthy {
			_, name, _ := strings.Cut(h.Device, "/gpugrp0/")
			_, name, _ = strings.Cut(name, "/")
			reasons[name] = h.Reason
		}
	}
	want := devices(info.Capacity)
	for name := range reasons {
		if want[name] == "" {
			t.Errorf("%s is unhealthy, and the node does not have it", name)
		}
		delete(want, name)
	}
	if diff := cmp.Diff(want, devices(info.Allocatable)); diff != "" {
		t.Errorf("allocatable (-want +got):\n%s", diff)
	}
	return reasons
}

func TestTheHealthOfInstances(t *testing.T) {
	library := nvmltest.Build(t, hopper())
	shared := library.At("3g.40gb", 4)
	shared.Compute = []int{1, 2}
	layout := map[int][]nvmltest.Part{1: {library.At("1g.10gb", 0), library.At("1g.10gb", 1), shared}}
	library.Partition(t, layout)
	d := configured(t, library, "")
	const none = 0xffffffff
	all := func(reason string) map[string]string {
		reasons := map[string]string{}
		for _, name := range []string{instance(1, 1, 0), instance(1, 2, 0), instance(1, 3, 0), instance(1, 3, 1)} {
			reasons[name] = reason
		}
		return reasons
	}
	with := func(base map[string]string, name, reason string) map[string]string {
		base = maps.Clone(base)
		base[name] = reason
		return base
	}
	healthy := map[string]string{}
	oneOfThem := with(healthy, instance(1, 2, 0), "Xid94")
	both := with(with(oneOfThem, instance(1, 3, 0), "Xid62"), instance(1, 3, 1), "Xid62")
	for _, story := range []struct {
		what string
		do   func()
		want map[string]string
	}{
		{"nothing is wrong", func() {}, healthy},
		{"an application's error in an instance", func() { library.BreakInstance(t, 1, 31, 2, 0) }, healthy},
		{"an XID of an instance", func() { library.BreakInstance(t, 1, 94, 2, 0) }, oneOfThem},
		{"an XID of a GPU instance", func() { library.BreakInstance(t, 1, 62, 3, none) }, both},
		{"an XID of an instance that is gone", func() { library.BreakInstance(t, 1, 94, 7, 0) }, both},
		{"an XID of the other GPU", func() { library.Break(t, 0, 48) }, with(both, "gpu/"+nvmltest.UUID(0), "Xid48")},
		{"the driver requests a reset", func() { library.Say(t, 1, nvmltest.Health{RecoveryAction: 1}) },
			with(all("ResetRequired"), "gpu/"+nvmltest.UUID(0), "Xid48")},
		{"the GPU is reset", func() { library.Say(t, 1, nvmltest.Health{}) },
			with(healthy, "gpu/"+nvmltest.UUID(0), "Xid48")},
		{"the GPU with the instances falls off the bus", func() { library.Lose(t, 1) },
			with(all("Lost"), "gpu/"+nvmltest.UUID(0), "Xid48")},
		{"it is back", func() { library.Lose(t) }, with(healthy, "gpu/"+nvmltest.UUID(0), "Xid48")},
		{"an XID of the whole GPU", func() { library.Break(t, 1, 119) },
			with(all("Xid119"), "gpu/"+nvmltest.UUID(0), "Xid48")},
	} {
		story.do()
		if diff := cmp.Diff(story.want, unhealthy(t, d)); diff != "" {
			t.Errorf("%s: unhealthy (-want +got):\n%s", story.what, diff)
		}
	}
}

func TestAFaultEndsWithItsInstanceAndOutlivesARestart(t *testing.T) {
	library := nvmltest.Build(t, hopper())
	layout := map[int][]nvmltest.Part{0: {library.At("1g.10gb", 0), library.At("1g.10gb", 1)}}
	library.Partition(t, layout)
	d := configured(t, library, "")
	update(t, d)
	library.BreakInstance(t, 0, 94, 1, 0)
	want := map[string]string{instance(0, 1, 0): "Xid94"}
	if diff := cmp.Diff(want, unhealthy(t, d)); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	library.Repair(t) // the driver reports it once

	restarted := startedAt(t, d.paths)
	if diff := cmp.Diff(want, unhealthy(t, restarted)); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
	library.Partition(t, map[int][]nvmltest.Part{0: {}})
	if got := unhealthy(t, restarted); len(got) > 0 {
		t.Errorf("without instances: %v", got)
	}
	library.Partition(t, layout)
	if got := unhealthy(t, restarted); len(got) > 0 {
		t.Errorf("with new instances of the same names: %v", got)
	}
	if again := startedAt(t, d.paths); len(unhealthy(t, again)) > 0 {
		t.Error("a fault that has ended is back after a restart")
	}
}
