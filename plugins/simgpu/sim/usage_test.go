// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

func TestTheProcessesOfTheFileUseTheGPUs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "simgpu.yaml")
	d := New(file)
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	same := cmp.Comparer(func(a, b device.Reading) bool { return a == b })
	for _, step := range []struct {
		text string
		want map[string]device.Usage
	}{
		{"count: 1\n", nil},
		{"count: 1\nmemory: 16Gi\nprocesses: []\n", map[string]device.Usage{
			"resource/group/gpu/sim-0": {
				MemoryTotal: device.Read(16 << 30), MemoryUsed: device.Read(0), Utilization: device.Read(0),
				Complete: true,
			},
		}},
		{
			`{count: 2, memory: 16Gi, processes: [{gpu: sim-0, pid: 10, memory: 6Gi, utilization: 80},
				{gpu: sim-0, pid: 11, memory: 1Gi, utilization: 30}, {gpu: sim-1, pid: 10}, {gpu: other, pid: 12}]}`,
			map[string]device.Usage{
				"resource/group/gpu/sim-0": {
					MemoryTotal: device.Read(16 << 30), MemoryUsed: device.Read(7 << 30), Utilization: device.Read(100),
					Complete: true, Processes: []device.ProcessUsage{
						{PID: 10, Memory: device.Read(6 << 30), Utilization: device.Read(80)},
						{PID: 11, Memory: device.Read(1 << 30), Utilization: device.Read(30)},
					},
				},
				"resource/group/gpu/sim-1": {
					MemoryTotal: device.Read(16 << 30), Complete: true,
					Processes: []device.ProcessUsage{{PID: 10}},
				},
			},
		},
	} {
		write(step.text)
		got, err := d.DeviceUsage()
		if diff := cmp.Diff(step.want, got, same); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", step.text, err, diff)
		}
	}
	write("{count: 1, processes: [{gpu: sim-0, pid: 10, utilization: 101}]}")
	if _, err := d.DeviceUsage(); err == nil || !strings.Contains(err.Error(), "utilization from 0 to 100") {
		t.Errorf("a process that uses more than there is: %v", err)
	}
}
