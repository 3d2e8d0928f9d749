// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"maps"
	"slices"

	"k8s.io/component-base/metrics"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/node/podresources"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// deviceMetrics are the node's devices as metrics, read from the inventory and the grants when they
// are collected: counts of each extended resource, and series of single devices and their holders.
// A device is named as the kubelet names it in its PodResources API, so that the series join with
// those of exporters.
type deviceMetrics struct {
	metrics.BaseStableCollector
	capacity, allocatable, healthy, unhealthy, tainted, held, leftOut *metrics.Desc

	devices deviceSource
	grants  grantList
	limit   int // devices that have series of their own
}

// deviceSource has the node's devices. *nodeDevices implements it.
type deviceSource interface{ state() deviceState }

// grantList has the granted allocations. *grants.Checkpoint implements it.
type grantList interface{ List() []grants.Allocation }

// deviceState is the node's devices at one moment.
type deviceState struct {
	node      *types.NodeInfo
	devices   podresources.Devices
	unhealthy []plugins.Health
	taints    []deviceinfo.DeviceTaint
}

// maxDeviceSeries is how many devices of a node have series of their own: more than any machine has
// GPUs or NICs, and few enough for Prometheus where partitions are devices.
const maxDeviceSeries = 256

// newDeviceMetrics returns the metrics of devices and grants, with series of at most limit devices.
func newDeviceMetrics(devices deviceSource, granted grantList, limit int) *deviceMetrics {
	desc := func(name, help string, labels ...string) *metrics.Desc {
		return metrics.NewDesc(metrics.BuildFQName("", subsystem, name), help, labels, nil, metrics.ALPHA, "")
	}
	return &deviceMetrics{
		capacity: desc("device_capacity", "Devices that the plugins report, by extended resource.", "resource"),
		allocatable: desc("device_allocatable",
			"Devices that the plugins report and that pods may be given, by extended resource.", "resource"),
		healthy: desc("device_healthy",
			"1 for each device that pods may be given, 0 for each that its plugin reports as unhealthy.",
			"resource", "device"),
		unhealthy: desc("device_unhealthy",
			"1 for each device that pods may not be given, with the reason that its plugin gives.",
			"resource", "device", "reason"),
		tainted: desc("device_tainted", "1 for each taint that administrators gave a device.",
			"resource", "device", "key", "effect"),
		held: desc("device_held", "1 for each device and container that holds it.",
			"resource", "device", "namespace", "pod", "container"),
		leftOut: desc("device_series_left_out", "Devices without series of their own: there are too many."),
		devices: devices, grants: granted, limit: limit,
	}
}

// DescribeWithStability is part of metrics.StableCollector.
func (c *deviceMetrics) DescribeWithStability(descs chan<- *metrics.Desc) {
	for _, desc := range []*metrics.Desc{
		c.capacity, c.allocatable, c.healthy, c.unhealthy, c.tainted, c.held, c.leftOut,
	} {
		descs <- desc
	}
}

// CollectWithStability is part of metrics.StableCollector.
func (c *deviceMetrics) CollectWithStability(values chan<- metrics.Metric) {
	now := c.devices.state()
	node, devices := now.node, now.devices
	gauge := func(desc *metrics.Desc, value float64, labels ...string) {
		values <- metrics.NewLazyConstMetric(desc, metrics.GaugeValue, value, labels...)
	}
	for name, quantity := range node.KubeCap {
		gauge(c.capacity, float64(quantity), string(name))
		gauge(c.allocatable, float64(node.KubeAlloc[name]), string(name))
	}

	type label struct{ resource, device string }
	healthy, shown := map[label]bool{}, map[label]bool{}
	for _, d := range devices.Healthy() {
		healthy[label{d.Resource, d.ID}] = true
	}
	leftOut := 0
	for _, d := range devices.Of(maps.Keys(node.Capacity)) { // in an order that does not change
		of := label{d.Resource, d.ID}
		switch {
		case shown[of]: // two devices of one name
		case len(shown) == c.limit:
			leftOut++
		default:
			shown[of] = true
			gauge(c.healthy, oneIf(healthy[of]), d.Resource, d.ID)
		}
	}
	gauge(c.leftOut, float64(leftOut))
	for _, h := range now.unhealthy {
		for _, d := range devices.Of(slices.Values([]types.ResourceName{h.Name})) {
			if of := (label{d.Resource, d.ID}); shown[of] && !healthy[of] {
				healthy[of] = true // two devices of one name
				gauge(c.unhealthy, 1, d.Resource, d.ID, h.Reason)
			}
		}
	}
	c.collectTaints(now, func(resource, device string) bool { return shown[label{resource, device}] }, gauge)

	type holder struct {
		label
		namespace, pod, container string
	}
	holders := map[holder]bool{} // an old pod and a new one may have the same name
	for _, grant := range c.grants.List() {
		for _, containers := range []map[string]types.ContainerInfo{
			grant.PodInfo.InitContainers, grant.PodInfo.RunningContainers,
		} {
			for container, info := range containers {
				for _, d := range devices.Of(maps.Values(info.AllocateFrom)) {
					of := label{d.Resource, d.ID}
					if shown[of] {
						holders[holder{of, grant.Namespace, grant.Name, container}] = true
					}
				}
			}
		}
	}
	for h := range holders {
		gauge(c.held, 1, h.resource, h.device, h.namespace, h.pod, h.container)
	}
}

// collectTaints collects the taints of the devices that are shown.
func (c *deviceMetrics) collectTaints(
	now deviceState, shown func(resource, device string) bool, gauge func(*metrics.Desc, float64, ...string),
) {
	if len(now.taints) == 0 {
		return
	}
	type series struct{ resource, device, key, effect string }
	all := map[series]bool{} // a device has several resources
	for name := range now.node.Capacity {
		path, err := resource.ParsePath(name)
		if err != nil {
			continue
		}
		for _, taint := range deviceinfo.TaintsOf(now.taints, path.Device()) {
			for _, d := range now.devices.Of(slices.Values([]types.ResourceName{name})) {
				if shown(d.Resource, d.ID) {
					all[series{d.Resource, d.ID, taint.Key, string(taint.Effect)}] = true
				}
			}
		}
	}
	for s := range all {
		gauge(c.tainted, 1, s.resource, s.device, s.key, s.effect)
	}
}
