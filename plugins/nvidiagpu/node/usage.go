// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvml"
)

// DeviceUsage reads how the GPUs and instances are used that the last UpdateNodeInfo reported. What
// the driver cannot say is unknown: a GPU that does not answer, how busy an instance is, how busy a
// process kept a GPU of which the driver has no sample.
func (d *Device) DeviceUsage() (map[string]device.Usage, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.released {
		return nil, nil // it is not known
	}
	if d.library == nil {
		return nil, errors.New("read the usage of NVIDIA GPUs: the driver has not been found yet")
	}
	all := map[string]device.Usage{}
	add := func(name string, from nvml.Device) (read bool) {
		usage, ok := usageOf(from)
		if ok {
			all[name] = usage
		}
		return ok
	}
	gpus, _ := d.offer()
	for _, g := range gpus {
		k := d.find(g.ID)
		if !g.Partitioned {
			if add(g.Name(), k.device) {
				all[g.Name()] = k.sample(all[g.Name()])
			}
			continue
		}
		devices, err := k.device.InstanceDevices()
		if err != nil {
			continue
		}
		for _, instance := range g.Instances {
			if from, there := devices[instance.ID]; there {
				add(g.InstanceName(instance), from)
			}
		}
	}
	return all, nil
}

// usageOf reads the memory and the processes of a GPU or an instance. ok is false for one that does
// not answer.
func usageOf(from nvml.Device) (usage device.Usage, ok bool) {
	total, used, err := from.MemoryUsage()
	if err == nil {
		usage.MemoryTotal, usage.MemoryUsed = device.Read(total), device.Read(used)
	} else if !nvml.IsMissing(err) { // as where the memory is the machine's
		return usage, false
	}
	processes, err := from.Processes()
	usage.Complete = err == nil
	for _, p := range processes {
		process := device.ProcessUsage{PID: int(p.PID)}
		if p.MemoryKnown {
			process.Memory = device.Read(int64(p.Memory))
		}
		usage.Processes = append(usage.Processes, process)
	}
	return usage, true
}

// sample adds how busy the GPU is, and how busy its processes keep it: of each the average of its
// samples since the last call.
func (k *known) sample(usage device.Usage) device.Usage {
	if percent, err := k.device.Utilization(); err == nil {
		usage.Utilization = device.Read(int64(percent))
	}
	samples, err := k.device.Samples(k.sampled)
	if err != nil {
		return usage
	}
	type sum struct{ percent, samples int64 }
	sums := map[int]sum{}
	for _, s := range samples {
		k.sampled = max(k.sampled, s.Timestamp)
		before := sums[int(s.PID)]
		sums[int(s.PID)] = sum{before.percent + int64(s.Multiprocessors), before.samples + 1}
	}
	for i := range usage.Processes {
		if sum, sampled := sums[usage.Processes[i].PID]; sampled {
			usage.Processes[i].Utilization = device.Read(sum.percent / sum.samples)
		}
	}
	return usage
}
