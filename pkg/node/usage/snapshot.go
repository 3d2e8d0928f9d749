// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage reads how much of the node's devices each container uses.
//
// A plugin reports the processes that use a device, by their PIDs on the host. A process belongs to
// the container in whose cgroup it is, and the container runtime knows the container's pod. So this
// needs the host's PID namespace and nothing of the container, and a container cannot hide in a
// cgroup that it makes itself, which is below its own. Processes of no known container are counted,
// too, as unowned. docs/use/usage.md has the limits.
//
// All devices are read at once, every few seconds. A reading says what was true at one time, and is
// not a bound: what a process uses and releases between two readings is not seen.
package usage

import (
	"time"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Snapshot is how the node's devices were used at one time. It is never changed.
type Snapshot struct {
	// Time is when the reading began. It is zero before the first one.
	Time time.Time
	// Reports says that a plugin can report usage. If not, Devices is empty.
	Reports bool
	// Devices are those whose usage is known, by Name.
	Devices []Device
	// Err says what could not be read, or is nil. What is in Devices holds with it, too.
	Err error
}

// Device is how one device is used.
type Device struct {
	// Name is what the names of its resources have in common, as in device.Health, and Resource the
	// name of one of them.
	Name     string
	Resource types.ResourceName
	// MemoryTotal, MemoryUsed and Utilization are as in device.Usage.
	MemoryTotal, MemoryUsed, Utilization device.Reading
	// Complete says that the driver lists all processes that use the device.
	Complete bool
	// Containers are those that use the device or hold it, in the order of their pods' names.
	Containers []Container
	// Unowned is what processes use that belong to no known container: programs on the host, and
	// containers that the CRI does not know. A process that has ended since the driver listed it is
	// one of them, for this reading.
	Unowned Consumption
}

// Container is how one container uses one device.
type Container struct {
	Identity
	Consumption
	// Holds says that the container was allocated the device, or a part of it. One that uses a
	// device without that has got it without the scheduler.
	Holds bool
	// Share is how many bytes of the device's memory the container was allocated: all for a whole
	// device, 0 for one that it does not hold. It is unknown for a part that is not counted in
	// memory.
	Share device.Reading
}

// Exceeds returns how many bytes more than its share the container uses, or 0: the contexts of its
// processes do not count, see ContextMemory. It is 0 for what is not known.
func (c Container) Exceeds() int64 {
	used, usedKnown := c.Memory.Value()
	share, shareKnown := c.Share.Value()
	if !usedKnown || !shareKnown {
		return 0
	}
	return max(0, used-c.Contexts-share)
}

// Identity is a container of a pod.
type Identity struct {
	// PodUID, Namespace, Pod and Name identify the container for as long as its pod lives.
	PodUID, Namespace, Pod, Name string
	// ID is the runtime's, and another one after each restart of the container. It is empty for a
	// container that holds the device while none of its processes uses it.
	ID string
}

// Consumption is what some processes use of a device.
type Consumption struct {
	// Processes is how many they are, as far as the driver lists them.
	Processes int
	// Memory is the sum of what they use, in bytes. It is unknown if it is so of one of them, or if
	// the driver does not list all processes.
	Memory device.Reading
	// Contexts is the part of Memory that counts as the processes' contexts, in bytes, see
	// ContextMemory.
	Contexts int64
	// Utilization is the sum of what is known of them, in percent. It is unknown if nothing is.
	Utilization device.Reading
}

// Plus returns what both use together.
func (c Consumption) Plus(other Consumption) Consumption {
	sum := Consumption{
		Processes: c.Processes + other.Processes, Contexts: c.Contexts + other.Contexts, Utilization: c.Utilization,
	}
	memory, known := c.Memory.Value()
	if more, knows := other.Memory.Value(); known && knows {
		sum.Memory = device.Read(memory + more)
	}
	if percent, knows := other.Utilization.Value(); knows {
		before, _ := c.Utilization.Value()
		sum.Utilization = device.Read(before + percent)
	}
	return sum
}

// add adds a process, of whose memory at most context counts as its context.
func (c *Consumption) add(p device.ProcessUsage, context int64) {
	if c.Processes >= MaxContexts {
		context = 0
	}
	used, _ := p.Memory.Value()
	*c = c.Plus(Consumption{
		Processes: 1, Memory: p.Memory, Contexts: min(used, context), Utilization: p.Utilization,
	})
}
