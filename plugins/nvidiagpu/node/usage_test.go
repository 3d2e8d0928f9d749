// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
)

// usageBy returns the usage of the devices, by their UUIDs.
func usageBy(t *testing.T, d *Device) map[string]device.Usage {
	t.Helper()
	if err := d.UpdateNodeInfo(types.NewNodeInfo()); err != nil {
		t.Fatal(err)
	}
	all, err := d.DeviceUsage()
	if err != nil {
		t.Fatal(err)
	}
	byUUID := map[string]device.Usage{}
	gpus, _ := d.offer()
	for _, g := range gpus {
		if usage, known := all[g.Name()]; known {
			byUUID[g.ID] = usage
		}
		for _, instance := range g.Instances {
			if usage, known := all[g.InstanceName(instance)]; known {
				byUUID[instance.ID] = usage
			}
		}
	}
	if len(byUUID) != len(all) {
		t.Errorf("there is usage of devices that are not offered: %v", all)
	}
	return byUUID
}

// readings compares usage.
var readings = cmp.Comparer(func(a, b device.Reading) bool { return a == b })

func TestUsageThatTheDriverCannotReportIsUnknown(t *testing.T) {
	library := nvmltest.Build(t, hopper())
	library.Partition(t, map[int][]nvmltest.Part{1: {library.At("1g.10gb", 0), library.At("3g.40gb", 4)}})
	d := configured(t, library, "")
	busy, idle := nvmltest.InstanceUUID(1, 1, 0), nvmltest.InstanceUUID(1, 2, 0)
	library.SetUsage(t, map[string]nvmltest.Usage{
		nvmltest.UUID(0): {Busy: 99, Processes: []nvmltest.Process{
			{PID: 10, Memory: 5 << 30, Samples: []nvmltest.Sample{
				{Timestamp: 1, Percent: 90}, {Timestamp: 2, Percent: 96},
			}},
			{PID: 11, Memory: nvmltest.Unknown},
		}},
		busy: {Busy: nvmltest.Unknown, Processes: []nvmltest.Process{{PID: 12, Memory: 2 << 30}}},
		idle: {Busy: nvmltest.Unknown},
	})
	total := device.Read(nvmltest.Memory)
	if m := hopper().Model.MemoryMiB; m > 0 {
		total = device.Read(int64(m) << 20)
	}
	want := map[string]device.Usage{
		nvmltest.UUID(0): {
			MemoryTotal: total, MemoryUsed: device.Read(5 << 30), Utilization: device.Read(99), Complete: true,
			Processes: []device.ProcessUsage{
				{PID: 10, Memory: device.Read(5 << 30), Utilization: device.Read(93)}, {PID: 11},
			},
		},
		busy: {
			MemoryTotal: total, MemoryUsed: device.Read(2 << 30), Complete: true,
			Processes: []device.ProcessUsage{{PID: 12, Memory: device.Read(2 << 30)}},
		},
		idle: {MemoryTotal: total, MemoryUsed: device.Read(0), Complete: true},
	}
	if diff := cmp.Diff(want, usageBy(t, d), readings); diff != "" {
		t.Errorf("DeviceUsage (-want +got):\n%s", diff)
	}
	// Samples count once.
	if got := usageBy(t, d)[nvmltest.UUID(0)].Processes[0].Utilization; got != (device.Reading{}) {
		t.Errorf("without a new sample the process keeps the GPU %s %% busy", got)
	}
}

func TestTheUsageOfALostGPUIsUnknownAlone(t *testing.T) {
	library := nvmltest.Build(t, hopper())
	d := configured(t, library, "")
	if got := usageBy(t, d); len(got) != 2 {
		t.Fatalf("the usage is %v", got)
	}
	library.Lose(t, 0)
	got := usageBy(t, d)
	if _, known := got[nvmltest.UUID(1)]; !known || len(got) != 1 {
		t.Errorf("the usage is %v", got)
	}
}

func TestAnOldDriverKnowsTheMemoryThatIsUsedAlone(t *testing.T) {
	machine := hopper()
	machine.OldDriver = true
	for uuid, usage := range usageBy(t, configured(t, nvmltest.Build(t, machine), "")) {
		if _, known := usage.MemoryUsed.Value(); !known || usage.Complete || usage.Processes != nil ||
			usage.Utilization != (device.Reading{}) {
			t.Errorf("%s: the usage is %+v", uuid, usage)
		}
	}
}
