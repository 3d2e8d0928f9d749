// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// meter is a plugin that reports the usage of its devices.
type meter struct {
	*fake
	answer func() (map[string]device.Usage, error)
}

func (m *meter) DeviceUsage() (map[string]device.Usage, error) { return m.answer() }

func TestPluginsReportTheUsageOfTheirOwnDevices(t *testing.T) {
	used := func(bytes int64) device.Usage { return device.Usage{MemoryUsed: device.Read(bytes), Complete: true} }
	says := func(name string, answer func() (map[string]device.Usage, error)) *meter {
		return &meter{&fake{name: name, update: offers("", card0, card1)}, answer}
	}
	first := says("a", func() (map[string]device.Usage, error) {
		return map[string]device.Usage{gpu0: used(1), "resource/group/gpu/9": used(9)}, nil
	})
	first.update = offers("", card0)
	second := says("b", func() (map[string]device.Usage, error) {
		return map[string]device.Usage{gpu0: used(2), gpu1: used(3)}, nil
	})
	third := says("c", func() (map[string]device.Usage, error) { return nil, errors.New("the driver is gone") })
	m := run(t, quick, nil, first, second, third, &fake{name: "d", update: offers("")})
	until(t, m, "all plugins", func(i *Inventory) bool { return i.Complete })
	got, reports, err := m.Usage(t.Context())
	same := cmp.Comparer(func(a, b device.Reading) bool { return a == b })
	if diff := cmp.Diff(map[string]device.Usage{gpu0: used(1), gpu1: used(3)}, got, same); diff != "" || !reports {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
	if err == nil || !strings.Contains(err.Error(), `device plugin "c"`) {
		t.Errorf("the error is %v", err)
	}
}

func TestNoPluginNeedsToReportUsage(t *testing.T) {
	m := run(t, quick, nil, &fake{name: "a", update: offers("", card0)})
	until(t, m, "the plugin", func(i *Inventory) bool { return i.Complete })
	if got, reports, err := m.Usage(t.Context()); len(got) != 0 || reports || err != nil {
		t.Errorf("the usage is %v, %v, %v", got, reports, err)
	}
}

func TestNumbersThatMakeNoSenseAreUnknown(t *testing.T) {
	usage := sanitizeUsage(device.Usage{
		MemoryTotal: device.Read(-1), MemoryUsed: device.Read(math.MaxInt64), Utilization: device.Read(101),
		Complete: true, Processes: []device.ProcessUsage{
			{PID: 1, Memory: device.Read(5), Utilization: device.Read(100)}, {PID: 2, Memory: device.Read(-5)},
		},
	})
	none := device.Reading{}
	if usage.MemoryTotal != none || usage.MemoryUsed != none || usage.Utilization != none || !usage.Complete ||
		usage.Processes[0].Memory != device.Read(5) || usage.Processes[0].Utilization != device.Read(100) ||
		usage.Processes[1].Memory != none {
		t.Errorf("what counts is %+v", usage)
	}
	for name, processes := range map[string][]device.ProcessUsage{
		"a process that is listed twice": {{PID: 1}, {PID: 1}}, "a process without a PID": {{PID: 1}, {}},
	} {
		usage := sanitizeUsage(device.Usage{Complete: true, Processes: processes})
		if usage.Complete || len(usage.Processes) != 1 {
			t.Errorf("%s: what counts is %+v", name, usage)
		}
	}
}
