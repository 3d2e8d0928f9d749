// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"strings"
	"testing"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubedevice/kubedevice/pkg/node/podresources"
	"github.com/kubedevice/kubedevice/pkg/node/usage"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// fixedUsage is a reading that does not change.
type fixedUsage usage.Snapshot

func (f *fixedUsage) Latest() (*usage.Snapshot, <-chan struct{}) { return (*usage.Snapshot)(f), nil }

// Devices implements podresources.Source.
func (d fixedDevices) Devices() podresources.Devices { return d.devices }

// oneReading is of two devices: of the second, nothing is known.
func oneReading() *fixedUsage {
	container := func(pod, id string, memory, share, percent device.Reading) usage.Container {
		of := usage.Container{
			Identity: usage.Identity{PodUID: "uid-" + pod, Namespace: "team", Pod: pod, Name: "main", ID: id},
			Share:    share, Consumption: usage.Consumption{Processes: 1, Memory: memory, Utilization: percent},
		}
		if used, _ := memory.Value(); used > 0 {
			of.Contexts = 3
		}
		return of
	}
	unknown := device.Reading{}
	return &fixedUsage{Time: time.UnixMilli(1500), Reports: true, Devices: []usage.Device{
		{
			Resource: gpuPath("GPU-0"), MemoryTotal: device.Read(100), MemoryUsed: device.Read(60),
			Utilization: device.Read(93), Unowned: usage.Consumption{Memory: device.Read(7)},
			Containers: []usage.Container{
				container("train", "1", device.Read(10), device.Read(40), device.Read(50)),
				container("train", "2", device.Read(20), device.Read(50), unknown),
				container("idle", "", device.Read(0), device.Read(50), unknown),
			},
		},
		{Resource: gpuPath("GPU-1"), Containers: []usage.Container{container("other", "3", unknown, unknown, unknown)}},
	}}
}

func TestKnownUsageHasSeries(t *testing.T) {
	const help = `
# HELP kubecri_device_container_memory_contexts_bytes [ALPHA] Part of the memory that each container uses that ` +
		`counts as the contexts of its processes, not against its share.
# TYPE kubecri_device_container_memory_contexts_bytes gauge
kubecri_device_container_memory_contexts_bytes{idle} 0
kubecri_device_container_memory_contexts_bytes{train} 6
# HELP kubecri_device_container_memory_share_bytes [ALPHA] Memory of each device that each container was allocated; ` +
		`0 for one that uses it and does not hold it.
# TYPE kubecri_device_container_memory_share_bytes gauge
kubecri_device_container_memory_share_bytes{idle} 50
kubecri_device_container_memory_share_bytes{train} 50
# HELP kubecri_device_container_memory_used_bytes [ALPHA] Memory of each device that each container uses, whether it ` +
		`holds the device or not.
# TYPE kubecri_device_container_memory_used_bytes gauge
kubecri_device_container_memory_used_bytes{idle} 0
kubecri_device_container_memory_used_bytes{train} 30
# HELP kubecri_device_container_utilization_ratio [ALPHA] Part of the time for which each container kept each device ` +
		`busy, as far as the driver samples it.
# TYPE kubecri_device_container_utilization_ratio gauge
kubecri_device_container_utilization_ratio{train} 0.5
# HELP kubecri_device_memory_total_bytes [ALPHA] Memory of each device that all programs together can use.
# TYPE kubecri_device_memory_total_bytes gauge
kubecri_device_memory_total_bytes{device="GPU-0",resource="example.com/gpu"} 100
# HELP kubecri_device_memory_unowned_bytes [ALPHA] Memory of each device that processes of no known container use.
# TYPE kubecri_device_memory_unowned_bytes gauge
kubecri_device_memory_unowned_bytes{device="GPU-0",resource="example.com/gpu"} 7
# HELP kubecri_device_memory_used_bytes [ALPHA] Memory of each device that is used, by all programs together.
# TYPE kubecri_device_memory_used_bytes gauge
kubecri_device_memory_used_bytes{device="GPU-0",resource="example.com/gpu"} 60
# HELP kubecri_device_usage_timestamp_seconds [ALPHA] Time of the last reading of devices' use, in seconds since 1970.
# TYPE kubecri_device_usage_timestamp_seconds gauge
kubecri_device_usage_timestamp_seconds 1.5
# HELP kubecri_device_utilization_ratio [ALPHA] Part of the time for which each device was busy, from 0 to 1.
# TYPE kubecri_device_utilization_ratio gauge
kubecri_device_utilization_ratio{device="GPU-0",resource="example.com/gpu"} 0.93
`
	series := help
	for _, pod := range []string{"idle", "train"} {
		series = strings.ReplaceAll(series, "{"+pod+"}", `{container="main",device="GPU-0",namespace="team",pod="`+pod+
			`",resource="example.com/gpu"}`)
	}
	registry := metrics.NewKubeRegistry()
	registry.CustomMustRegister(newUsageMetrics(oneReading(), fixedDevices(twoGPUs()), 2))
	if err := testutil.GatherAndCompare(registry, strings.NewReader(series)); err != nil {
		t.Error(err)
	}
}

func TestANodeWithoutReadingsHasNoSeriesOfUsage(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	registry.CustomMustRegister(newUsageMetrics(&fixedUsage{}, fixedDevices(twoGPUs()), 2))
	if families, err := registry.Gather(); len(families) > 0 || err != nil {
		t.Errorf("there are %v, %v", families, err)
	}
}
