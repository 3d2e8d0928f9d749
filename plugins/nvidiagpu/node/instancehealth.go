// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"time"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvml"
)

// setInstances takes note of the instances that a GPU has. What is known of those that are gone is
// forgotten: another one of the same name is a new one.
func (h *health) setInstances(g found) {
	if h.gpus[g.uuid] == nil {
		h.gpus[g.uuid] = &state{}
	}
	h.instances[g.uuid] = g.instances
	isThere := func(uuid string) bool {
		return slices.ContainsFunc(g.instances, func(i nvml.Instance) bool { return i.UUID == uuid })
	}
	for uuid, s := range h.gpus {
		if s.gpu == g.uuid && !isThere(uuid) {
			delete(h.gpus, uuid)
		}
	}
	for uuid, f := range h.faults {
		if f.GPU == g.uuid && !isThere(uuid) {
			delete(h.faults, uuid)
		}
	}
	for _, instance := range g.instances {
		if h.gpus[instance.UUID] == nil {
			h.gpus[instance.UUID] = &state{gpu: g.uuid}
		}
	}
}

// family returns the UUIDs of a GPU and of its instances.
func (h *health) family(gpu string) []string {
	uuids := []string{gpu}
	for _, instance := range h.instances[gpu] {
		uuids = append(uuids, instance.UUID)
	}
	return uuids
}

// affectedUUIDs returns the UUIDs of what an XID of a GPU concerns: the instance that the driver
// names, all of a GPU instance, or the GPU. One of an instance that is gone concerns nothing.
func (h *health) affectedUUIDs(gpu string, xid nvml.XID) (uuids []string) {
	if xid.GPUInstance == nvml.NoInstance || len(h.instances[gpu]) == 0 {
		return []string{gpu}
	}
	for _, instance := range h.instances[gpu] {
		if instance.GPUInstance == xid.GPUInstance &&
			(xid.ComputeInstance == nvml.NoInstance || xid.ComputeInstance == instance.ComputeInstance) {
			uuids = append(uuids, instance.UUID)
		}
	}
	return uuids
}

// judgeInstance sets the health of an instance: that of its GPU while this is unhealthy, else by
// its own fault.
func (s *state) judgeInstance(gpu device.Health, f *fault, now time.Time) {
	next := device.Health{Healthy: true}
	switch {
	case !gpu.Healthy:
		next = gpu
	case f != nil:
		next = device.Health{
			Reason: xidReason(f.XID), Since: f.Since,
			Message: xidMessage(f.XID, "destroy the instance and create it again, or reset the GPU"),
		}
	}
	s.become(next, now)
}
