// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/mig"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvml"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
)

func TestProcessesAreRead(t *testing.T) {
	fake := nvmltest.Build(t, partitionable(1, mig.Model{}))
	fake.SetUsage(t, map[string]nvmltest.Usage{nvmltest.UUID(0): {Busy: 93, Processes: []nvmltest.Process{
		{PID: 10, Memory: 1 << 30, Samples: []nvmltest.Sample{{Timestamp: 5, Percent: 7}, {Timestamp: 6, Percent: 9}}},
		{PID: 11, Memory: nvmltest.Unknown},
		{PID: 11, Memory: 2 << 30, Graphics: true},
		{PID: 12, Memory: 3 << 30, Graphics: true},
	}}})
	gpu := open(t, fake.Path)[0]

	got, err := gpu.Processes()
	want := []nvml.Process{
		{PID: 10, Memory: 1 << 30, MemoryKnown: true}, {PID: 11, Memory: 2 << 30, MemoryKnown: true},
		{PID: 12, Memory: 3 << 30, MemoryKnown: true},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("Processes: %v (-want +got):\n%s", err, diff)
	}
	if usable, used, err := gpu.MemoryUsage(); usable != nvmltest.Memory || used != 6<<30 || err != nil {
		t.Errorf("MemoryUsage = %d, %d, %v", usable, used, err)
	}
	if percent, err := gpu.Utilization(); percent != 93 || err != nil {
		t.Errorf("Utilization = %d, %v", percent, err)
	}
	samples, err := gpu.Samples(5)
	if diff := cmp.Diff([]nvml.Sample{{PID: 10, Timestamp: 6, Multiprocessors: 9}}, samples); diff != "" || err != nil {
		t.Errorf("Samples: %v (-want +got):\n%s", err, diff)
	}
	if samples, err := gpu.Samples(6); len(samples) != 0 || err != nil {
		t.Errorf("Samples of an idle GPU = %v, %v", samples, err)
	}
}

func TestMoreProcessesThanUsualAreRead(t *testing.T) {
	fake := nvmltest.Build(t, partitionable(1, mig.Model{}))
	usage := nvmltest.Usage{}
	for pid := range 200 {
		usage.Processes = append(usage.Processes, nvmltest.Process{PID: pid, Memory: 1})
	}
	fake.SetUsage(t, map[string]nvmltest.Usage{nvmltest.UUID(0): usage})
	if got, err := open(t, fake.Path)[0].Processes(); len(got) != 200 || err != nil {
		t.Errorf("%d processes, %v", len(got), err)
	}
}

func TestEachInstanceListsItsOwnProcesses(t *testing.T) {
	fake := nvmltest.Build(t, partitionable(1, mig.H100With80GB()))
	fake.Partition(t, map[int][]nvmltest.Part{0: {fake.At("1g.10gb", 0), fake.At("3g.40gb", 4)}})
	first, second := nvmltest.InstanceUUID(0, 1, 0), nvmltest.InstanceUUID(0, 2, 0)
	fake.SetUsage(t, map[string]nvmltest.Usage{
		first: {Processes: []nvmltest.Process{{PID: 10, Memory: 1 << 30}}}, second: {},
	})
	devices, err := open(t, fake.Path)[0].InstanceDevices()
	if err != nil || len(devices) != 2 {
		t.Fatalf("InstanceDevices = %v, %v", devices, err)
	}
	for uuid, want := range map[string]int{first: 1, second: 0} {
		if got, err := devices[uuid].Processes(); len(got) != want || err != nil {
			t.Errorf("%s: Processes = %v, %v", uuid, got, err)
		}
		if _, err := devices[uuid].Samples(0); !nvml.IsMissing(err) {
			t.Errorf("%s: Samples: %v", uuid, err)
		}
	}
}

func TestAnOldDriverListsNoProcesses(t *testing.T) {
	gpu := open(t, nvmltest.Build(t, nvmltest.Machine{Ancestor: [][]int{{0}}, OldDriver: true}).Path)[0]
	_, errProcesses := gpu.Processes()
	_, errSamples := gpu.Samples(0)
	_, errUtilization := gpu.Utilization()
	for call, err := range map[string]error{
		"Processes": errProcesses, "Samples": errSamples, "Utilization": errUtilization,
	} {
		if !nvml.IsMissing(err) {
			t.Errorf("%s: %v", call, err)
		}
	}
}
