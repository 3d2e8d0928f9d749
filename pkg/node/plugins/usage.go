// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"path"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// maxMemory is more memory than any device has, in bytes: sums over processes do not overflow.
const maxMemory = 1 << 50

// usageSource is a source that can read how its devices are used.
type usageSource interface {
	// usage reads how the source's devices are used now. reports is false for a source that cannot
	// say.
	usage(ctx context.Context) (all map[string]device.Usage, reports bool, err error)
}

var _ usageSource = (*plugin)(nil)

// usage implements usageSource.
func (p *plugin) usage(ctx context.Context) (all map[string]device.Usage, reports bool, err error) {
	reporter, reports := p.device.(device.UsageReporter)
	if !reports {
		return nil, false, nil
	}
	all, err = callPlugin(ctx, p, "DeviceUsage", p.timing.Update, reporter.DeviceUsage)
	return all, true, err
}

// Usage reads how the devices of the inventory are used now, from all plugins that can say, and
// returns it by device as in device.Health. The usage of a device that is not in the answer is
// unknown. reports is false if no plugin can say anything. The error names each plugin that failed.
func (m *Manager) Usage(ctx context.Context) (all map[string]device.Usage, reports bool, err error) {
	inventory, _ := m.Inventory()
	all = map[string]device.Usage{}
	var errs []error
	for _, member := range inventory.members {
		source, can := member.source.(usageSource)
		if !can || member.state.Info == nil {
			continue
		}
		read, says, err := source.usage(ctx)
		reports = reports || says
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for name := range member.state.Info.Capacity {
			devicePath := path.Dir(string(name))
			if usage, known := read[devicePath]; known && inventory.owners[name] == member {
				all[devicePath] = sanitizeUsage(usage)
			}
		}
	}
	return all, reports, errors.Join(errs...)
}

// sanitizeUsage returns what counts of a plugin's answer: numbers that make no sense are unknown,
// and a process counts once.
func sanitizeUsage(usage device.Usage) device.Usage {
	bytes := func(r device.Reading) device.Reading { return inRange(r, maxMemory) }
	percent := func(r device.Reading) device.Reading { return inRange(r, 100) }
	kept := device.Usage{
		MemoryTotal: bytes(usage.MemoryTotal), MemoryUsed: bytes(usage.MemoryUsed),
		Utilization: percent(usage.Utilization), Complete: usage.Complete,
	}
	seen := make(map[int]bool, len(usage.Processes))
	for _, p := range usage.Processes {
		if p.PID <= 0 || seen[p.PID] {
			kept.Complete = false
			continue
		}
		seen[p.PID] = true
		kept.Processes = append(kept.Processes, device.ProcessUsage{
			PID: p.PID, Memory: bytes(p.Memory), Utilization: percent(p.Utilization),
		})
	}
	return kept
}

// inRange returns the reading, or an unknown one if the number is not from 0 to most.
func inRange(r device.Reading, most int64) device.Reading {
	if value, known := r.Value(); !known || value < 0 || value > most {
		return device.Reading{}
	}
	return r
}
