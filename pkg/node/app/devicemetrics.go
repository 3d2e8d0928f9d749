// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"k8s.io/component-base/metrics"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// deviceCounts are the node's extended resources as metrics, read from the inventory when they are
// collected.
type deviceCounts struct {
	metrics.BaseStableCollector
	capacity, allocatable *metrics.Desc
	node                  func() *types.NodeInfo
}

// newDeviceCounts returns the counts of what node returns.
func newDeviceCounts(node func() *types.NodeInfo) *deviceCounts {
	desc := func(name, help string) *metrics.Desc {
		return metrics.NewDesc(metrics.BuildFQName("", subsystem, name), help, []string{"resource"}, nil,
			metrics.ALPHA, "")
	}
	return &deviceCounts{
		capacity: desc("device_capacity", "Devices that the plugins report, by extended resource."),
		allocatable: desc("device_allocatable",
			"Devices that the plugins report and that pods may be given, by extended resource."),
		node: node,
	}
}

// DescribeWithStability is part of metrics.StableCollector.
func (c *deviceCounts) DescribeWithStability(descs chan<- *metrics.Desc) {
	descs <- c.capacity
	descs <- c.allocatable
}

// CollectWithStability is part of metrics.StableCollector.
func (c *deviceCounts) CollectWithStability(values chan<- metrics.Metric) {
	node := c.node()
	for name, quantity := range node.KubeCap {
		values <- metrics.NewLazyConstMetric(c.capacity, metrics.GaugeValue, float64(quantity), string(name))
		values <- metrics.NewLazyConstMetric(c.allocatable, metrics.GaugeValue, float64(node.KubeAlloc[name]),
			string(name))
	}
}
