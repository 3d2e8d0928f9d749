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
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/node/policing"
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
	enforced                                                          *metrics.Desc

	devices deviceSource
	grants  grantList
	shares  shareSource
	limit   int // devices that have series of their own
}

// deviceSource has the node's devices. *nodeDevices implements it.
type deviceSource interface{ state() deviceState }

// grantList has the granted allocations. *grants.Checkpoint implements it.
type grantList interface{ List() []grants.Allocation }

// shareSource knows by what containers are held to shares. *nodeShares implements it.
type shareSource interface {
	// Of returns by what a container of a pod is held to a share of the device that has a resource.
	Of(name types.ResourceName, podUID string) deviceinfo.Enforcement
}

// nodeShares knows by what this node holds containers to shares.
type nodeShares struct {
	enforcement *policing.Enforcement // nil where nothing holds containers to shares
	pods        *pods.Registry
}

// Of implements shareSource.
func (s *nodeShares) Of(name types.ResourceName, podUID string) deviceinfo.Enforcement {
	var now *deviceinfo.ShareEnforcement
	if s.enforcement != nil {
		now, _ = s.enforcement.ShareEnforcement()
	}
	path, err := resource.ParsePath(name)
	if now == nil || err != nil {
		return deviceinfo.Counted
	}
	pod, _ := s.pods.Get(podUID)
	return now.Of(path.Device(), pod.OnShareExceeded)
}

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
func newDeviceMetrics(devices deviceSource, granted grantList, shares shareSource, limit int) *deviceMetrics {
	desc := func(name, help string, labels ...string) *metrics.Desc {
		return metrics.NewDesc(metrics.BuildFQName("", subsystem, name), help, labels, nil, metrics.ALPHA, "")
	}
	return &deviceMetrics{
		capacity: desc("device_capacity", "Devices that the plugins report, by extended resource.", "resource"),
		allocatable: desc("device_allocatable",
			"Devices that the plugins report and that can be allocated to pods, by extended resource.", "resource"),
		healthy: desc("device_healthy",
			"1 for each device that can be allocated to pods, 0 for each that its plugin reports as unhealthy.",
			"resource", "device"),
		unhealthy: desc("device_unhealthy",
			"1 for each device that cannot be allocated to pods, with the reason that its plugin reports.",
			"resource", "device", "reason"),
		tainted: desc("device_tainted", "1 for each taint that administrators gave a device.",
			"resource", "device", "key", "effect"),
		held: desc("device_held", "1 for each device and container that holds it.",
			"resource", "device", "namespace", "pod", "container"),
		enforced: desc("device_container_enforcement",
			"1 for each device and container that holds it or a share of it, with what holds the container to that: "+
				"hardware, policed, library or counted.",
			"resource", "device", "namespace", "pod", "container", "enforcement"),
		leftOut: desc("device_series_left_out", "Devices without series of their own: there are too many."),
		devices: devices, grants: granted, shares: shares, limit: limit,
	}
}

// DescribeWithStability is part of metrics.StableCollector.
func (c *deviceMetrics) DescribeWithStability(descs chan<- *metrics.Desc) {
	for _, desc := range []*metrics.Desc{
		c.capacity, c.allocatable, c.healthy, c.unhealthy, c.tainted, c.held, c.leftOut,
		c.enforced,
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
	for _, d := range devices.ForResources(maps.Keys(node.Capacity)) { // in an order that does not change
		key := label{d.Resource, d.ID}
		switch {
		case shown[key]: // two devices of one name
		case len(shown) == c.limit:
			leftOut++
		default:
			shown[key] = true
			gauge(c.healthy, oneIf(healthy[key]), d.Resource, d.ID)
		}
	}
	gauge(c.leftOut, float64(leftOut))
	for _, h := range now.unhealthy {
		for _, d := range devices.ForResources(slices.Values([]types.ResourceName{h.Name})) {
			if key := (label{d.Resource, d.ID}); shown[key] && !healthy[key] {
				healthy[key] = true // two devices of one name
				gauge(c.unhealthy, 1, d.Resource, d.ID, h.Reason)
			}
		}
	}
	c.collectTaints(now, func(resource, device string) bool { return shown[label{resource, device}] }, gauge)

	type holder struct {
		label
		namespace, pod, container string
	}
	// An old pod and a new one may have the same name.
	holders := map[holder]deviceinfo.Enforcement{}
	for _, grant := range c.grants.List() {
		for _, containers := range []map[string]types.ContainerInfo{
			grant.PodInfo.InitContainers, grant.PodInfo.RunningContainers,
		} {
			for container, info := range containers {
				for request, from := range info.AllocateFrom {
					if _, known := node.Capacity[from]; !known { // it has other groups now
						from = grants.CurrentName(maps.Keys(node.Capacity), from)
					}
					enforcement := deviceinfo.EnforcedByHardware
					if info.DevRequests[request] < node.Capacity[from] {
						enforcement = c.shares.Of(from, grant.PodUID)
					}
					for _, d := range devices.ForResources(slices.Values([]types.ResourceName{from})) {
						h := holder{label{d.Resource, d.ID}, grant.Namespace, grant.Name, container}
						if before := holders[h]; shown[h.label] && (before == "" || enforcement.Satisfies(before)) {
							holders[h] = enforcement
						}
					}
				}
			}
		}
	}
	for h, enforcement := range holders {
		gauge(c.held, 1, h.resource, h.device, h.namespace, h.pod, h.container)
		gauge(c.enforced, 1, h.resource, h.device, h.namespace, h.pod, h.container, string(enforcement))
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
			for _, d := range now.devices.ForResources(slices.Values([]types.ResourceName{name})) {
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
