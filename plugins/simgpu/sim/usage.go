// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import "github.com/kubedevice/kubedevice/pkg/sdk/device"

// DeviceUsage returns what the processes of the file use. The file is read again. A process stands
// once for each GPU. Without a list of processes, nothing is known.
func (d *Device) DeviceUsage() (map[string]device.Usage, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	config, err := d.read()
	if err != nil {
		return nil, err
	}
	if config.Processes == nil {
		return nil, nil
	}
	all := map[string]device.Usage{}
	for _, g := range config.gpus() {
		usage := device.Usage{MemoryTotal: device.Read(g.Memory), Complete: true}
		var used, busy int64
		usedKnown, busyKnown := true, true
		for _, p := range config.Processes {
			if p.GPU != g.ID {
				continue
			}
			process := device.ProcessUsage{PID: p.PID}
			if p.Memory != nil {
				process.Memory = device.Read(p.Memory.Value())
				used += p.Memory.Value()
			} else {
				usedKnown = false
			}
			if p.Utilization != nil {
				process.Utilization = device.Read(*p.Utilization)
				busy += *p.Utilization
			} else {
				busyKnown = false
			}
			usage.Processes = append(usage.Processes, process)
		}
		if usedKnown {
			usage.MemoryUsed = device.Read(used)
		}
		if busyKnown {
			usage.Utilization = device.Read(min(busy, 100))
		}
		all[g.Name()] = usage
	}
	return all, nil
}
