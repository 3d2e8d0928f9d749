// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"slices"

	"k8s.io/component-base/metrics"

	"github.com/kubedevice/kubedevice/pkg/node/podresources"
	"github.com/kubedevice/kubedevice/pkg/node/usage"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// usageMetrics are the latest reading of the use of devices, as metrics. What is unknown has no
// series. Devices are named as in deviceMetrics.
type usageMetrics struct {
	metrics.BaseStableCollector
	read, total, used, busy, unowned             *metrics.Desc
	containerUsed, containerShare, containerBusy *metrics.Desc
	containerContexts                            *metrics.Desc

	usage   usageSource
	devices podresources.Source
	limit   int // devices that have series
}

// usageSource has the latest reading. *usage.Reader implements it.
type usageSource interface {
	Latest() (latest *usage.Snapshot, changed <-chan struct{})
}

// newUsageMetrics returns the metrics of readings, with series of at most limit devices.
func newUsageMetrics(usage usageSource, devices podresources.Source, limit int) *usageMetrics {
	desc := func(name, help string, labels ...string) *metrics.Desc {
		return metrics.NewDesc(metrics.BuildFQName("", subsystem, name), help, labels, nil, metrics.ALPHA, "")
	}
	container := []string{"resource", "device", "namespace", "pod", "container"}
	return &usageMetrics{
		read: desc("device_usage_timestamp_seconds",
			"Time of the last reading of devices' use, in seconds since 1970."),
		total: desc("device_memory_total_bytes", "Memory of each device that all programs together can use.",
			"resource", "device"),
		used: desc("device_memory_used_bytes", "Memory of each device that is used, by all programs together.",
			"resource", "device"),
		busy: desc("device_utilization_ratio", "Part of the time for which each device was busy, from 0 to 1.",
			"resource", "device"),
		unowned: desc("device_memory_unowned_bytes",
			"Memory of each device that processes of no known container use.", "resource", "device"),
		containerUsed: desc("device_container_memory_used_bytes",
			"Memory of each device that each container uses, whether it holds the device or not.", container...),
		containerShare: desc("device_container_memory_share_bytes",
			"Memory of each device that each container was allocated; 0 for one that uses it and does not hold it.",
			container...),
		containerContexts: desc("device_container_memory_contexts_bytes",
			"Part of the memory that each container uses that counts as the contexts of its processes, not against "+
				"its share.", container...),
		containerBusy: desc("device_container_utilization_ratio",
			"Part of the time for which each container kept each device busy, as far as the driver samples it.",
			container...),
		usage: usage, devices: devices, limit: limit,
	}
}

// DescribeWithStability is part of metrics.StableCollector.
func (c *usageMetrics) DescribeWithStability(descs chan<- *metrics.Desc) {
	for _, desc := range []*metrics.Desc{
		c.read, c.total, c.used, c.busy, c.unowned, c.containerUsed, c.containerShare, c.containerBusy,
		c.containerContexts,
	} {
		descs <- desc
	}
}

// CollectWithStability is part of metrics.StableCollector.
func (c *usageMetrics) CollectWithStability(values chan<- metrics.Metric) {
	latest, _ := c.usage.Latest()
	if !latest.Reports {
		return // there is nothing to be known
	}
	gauge := func(desc *metrics.Desc, value float64, labels ...string) {
		values <- metrics.NewLazyConstMetric(desc, metrics.GaugeValue, value, labels...)
	}
	reading := func(desc *metrics.Desc, value device.Reading, unit float64, labels ...string) {
		if number, known := value.Value(); known {
			gauge(desc, float64(number)/unit, labels...)
		}
	}
	gauge(c.read, float64(latest.Time.UnixMilli())/1000)
	devices := c.devices.Devices()
	type label struct{ resource, device string }
	shown := map[label]bool{}
	for _, d := range latest.Devices {
		for _, named := range devices.ForResources(slices.Values([]types.ResourceName{d.Resource})) {
			key := label{named.Resource, named.ID}
			if shown[key] || len(shown) == c.limit {
				continue // two devices of one name, or too many
			}
			shown[key] = true
			reading(c.total, d.MemoryTotal, 1, key.resource, key.device)
			reading(c.used, d.MemoryUsed, 1, key.resource, key.device)
			reading(c.busy, d.Utilization, 100, key.resource, key.device)
			reading(c.unowned, d.Unowned.Memory, 1, key.resource, key.device)
			for _, container := range byName(d.Containers) {
				labels := []string{key.resource, key.device, container.Namespace, container.Pod, container.Name}
				reading(c.containerUsed, container.Memory, 1, labels...)
				if _, known := container.Memory.Value(); known {
					gauge(c.containerContexts, float64(container.Contexts), labels...)
				}
				reading(c.containerShare, container.Share, 1, labels...)
				reading(c.containerBusy, container.Utilization, 100, labels...)
			}
		}
	}
}

// byName returns the containers with those of one name as one: of a pod and its successor, or of a
// container before and after a restart. They use what both use, and have the larger share.
func byName(list []usage.Container) (merged []usage.Container) {
	for _, c := range list {
		last := len(merged) - 1
		if last < 0 || merged[last].Namespace != c.Namespace || merged[last].Pod != c.Pod ||
			merged[last].Name != c.Name {
			merged = append(merged, c)
			continue
		}
		m := &merged[last]
		m.Consumption = m.Plus(c.Consumption)
		if before, known := m.Share.Value(); known {
			if share, knows := c.Share.Value(); !knows || share > before {
				m.Share = c.Share
			}
		}
	}
	return merged
}
