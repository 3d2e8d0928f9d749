// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestTheShareIsWhatTheContainerWasAllocated(t *testing.T) {
	for name, test := range map[string]struct {
		resource string
		quantity int64
		share    device.Reading
		holds    bool
		exceeds  int64
	}{
		"a part of the memory":      {"memory", 1 << 29, device.Read(1 << 29), true, 1 << 29},
		"a large part of it":        {"memory", 8 << 30, device.Read(8 << 30), true, 0},
		"all memory":                {"memory", 16 << 30, device.Read(16 << 30), true, 0},
		"a whole device":            {"cards", 1, device.Read(16 << 30), true, 0},
		"a part of something else":  {"cores", 10, device.Reading{}, true, 0},
		"a bit of a mask":           {"enumLinks", 1, device.Read(0), false, 1 << 30},
		"nothing":                   {"memory", 0, device.Read(0), false, 1 << 30},
		"a part of another device":  {"../1/memory", 1 << 29, device.Read(0), false, 1 << 30},
		"an extended resource only": {"", 1, device.Read(0), false, 1 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(2)
			main := h.run(1)
			resource := types.ResourceName(gpu(0) + "/" + test.resource)
			switch test.resource {
			case "":
				resource = "nvidia.com/gpu"
			case "../1/memory":
				resource = types.ResourceName(gpu(1) + "/memory")
			}
			h.grant(main, resource, test.quantity)
			h.start(10, pod(1))
			h.usage[gpu(0)] = uses(10)
			inventory, _ := h.Inventory()
			capacity := inventory.Node.Capacity
			capacity[types.ResourceName(gpu(0)+"/cores")] = 100
			used := Consumption{Memory: device.Read(1 << 30)}
			got := Container{Identity: main, Share: device.Read(0), Consumption: used}
			if test.resource != "cores" {
				got = h.read(t).Devices[0].Containers[0]
			} else if held := holdings(h.granted, capacity)[gpu(0)]; len(held) == 1 {
				main.ID = ""
				got.Holds, got.Share = true, held[main].share(device.Read(16<<30))
			}
			if got.Share != test.share || got.Holds != test.holds || got.Exceeds() != test.exceeds {
				t.Errorf("the share is %s, held %v, exceeded by %d", got.Share, got.Holds, got.Exceeds())
			}
		})
	}
}

func TestAContainerHoldsItsDeviceWhenTheGroupsAreNumberedAgain(t *testing.T) {
	const before = "resource/group/switch/7/gpu/0" // which is gpu(0) now
	for name, test := range map[string]struct {
		granted  string
		quantity int64
		share    device.Reading
	}{
		"a part of the memory":                {before + "/memory", 1 << 29, device.Read(1 << 29)},
		"all memory":                          {before + "/memory", 16 << 30, device.Read(16 << 30)},
		"a whole device":                      {before + "/cards", 1, device.Read(16 << 30)},
		"a resource that the device has lost": {gpu(0) + "/slots", 1, device.Reading{}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(1)
			main := h.run(1)
			h.grant(main, types.ResourceName(test.granted), test.quantity)
			h.start(10, pod(1))
			h.usage[gpu(0)] = uses(10)
			got := h.read(t).Devices[0].Containers
			if len(got) != 1 || !got[0].Holds || got[0].Share != test.share {
				t.Errorf("its containers are %+v, want one with a share of %s", got, test.share)
			}
		})
	}
}

func TestAContainerThatHoldsADeviceAndDoesNotUseItUsesNothing(t *testing.T) {
	h := newHost(1)
	main := h.run(1)
	h.grant(main, types.ResourceName(gpu(0)+"/memory"), 1<<30)
	h.usage[gpu(0)] = uses()
	main.ID = ""
	got := h.read(t).Devices[0].Containers
	if len(got) != 1 || got[0].Identity != main || got[0].Memory != device.Read(0) || got[0].Processes != 0 {
		t.Errorf("its containers are %+v", got)
	}
}

func TestMissingReadingsAreUnknown(t *testing.T) {
	h := newHost(2)
	main, idle := h.run(1), h.run(2)
	for n := range 2 {
		h.grant(main, types.ResourceName(gpu(n)+"/memory"), 1)
		h.grant(idle, types.ResourceName(gpu(n)+"/memory"), 1)
	}
	h.start(10, pod(1))
	h.start(11, pod(1))
	// Of one device, the memory of one of two processes is unknown; of the other, there may be more
	// processes.
	h.usage[gpu(0)] = device.Usage{Complete: true, Processes: []device.ProcessUsage{
		{PID: 10, Memory: device.Read(5), Utilization: device.Read(30)}, {PID: 11},
	}}
	h.usage[gpu(1)] = device.Usage{Processes: []device.ProcessUsage{{PID: 10, Memory: device.Read(5)}}}
	got := h.read(t).Devices
	for what, test := range map[string]struct{ got, want device.Reading }{
		"the memory of a process that is not known":      {got[0].Containers[0].Memory, device.Reading{}},
		"the memory of a container without processes":    {got[0].Containers[1].Memory, device.Read(0)},
		"the memory where there may be more":             {got[1].Containers[0].Memory, device.Reading{}},
		"the memory of none where there may be more":     {got[1].Containers[1].Memory, device.Reading{}},
		"the memory of unknown owners, of none":          {got[0].Unowned.Memory, device.Read(0)},
		"the memory of unknown owners that may be there": {got[1].Unowned.Memory, device.Reading{}},
		"the utilization of which a part is known":       {got[0].Containers[0].Utilization, device.Read(30)},
		"the utilization of which nothing is":            {got[0].Containers[1].Utilization, device.Reading{}},
	} {
		if test.got != test.want {
			t.Errorf("%s is %s, want %s", what, test.got, test.want)
		}
	}
	if exceeds := got[0].Containers[0].Exceeds(); exceeds != 0 {
		t.Errorf("a share of 1 byte is exceeded by %d, by processes of unknown memory", exceeds)
	}
}

func TestContainersAndUnknownOwnersTogetherUseWhatTheProcessesUse(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		h := newHost(4)
		for n := range 5 {
			h.run(n)
		}
		want := map[string]int64{}
		for n := range h.gpus {
			usage := device.Usage{Complete: true}
			for pid := 1; pid < 30; pid++ {
				if random.IntN(2) == 0 {
					continue
				}
				bytes := random.Int64N(1 << 34)
				usage.Processes = append(usage.Processes, device.ProcessUsage{PID: pid, Memory: device.Read(bytes)})
				want[gpu(n)] += bytes
			}
			h.usage[gpu(n)] = usage
		}
		for pid := range 30 {
			switch random.IntN(4) {
			case 0: // it has ended
			case 1:
				h.start(pid, fmt.Sprintf("/system.slice/%d.service", random.IntN(3)))
			default:
				h.start(pid, pod(random.IntN(8))) // some are unknown
			}
		}
		for _, d := range h.read(t).Devices {
			sum, known := d.Unowned.Memory.Value()
			processes := d.Unowned.Processes
			for _, c := range d.Containers {
				bytes, knows := c.Memory.Value()
				sum, known, processes = sum+bytes, known && knows, processes+c.Processes
			}
			if sum != want[d.Name] || !known || processes != len(h.usage[d.Name].Processes) {
				t.Fatalf("%s: %d processes use %d bytes of %d: %+v", d.Name, processes, sum, want[d.Name], d)
			}
		}
	}
}

func FuzzCgroups(f *testing.F) {
	f.Add("0::" + pod(1))
	f.Add("12:memory:/a\n11:cpu,cpuacct:/b:c\n0::/")
	f.Fuzz(func(t *testing.T, cgroups string) {
		for _, ids := range idsIn(cgroups) {
			for _, id := range ids {
				if len(id) < minID {
					t.Errorf("%q is an ID", id)
				}
			}
		}
	})
}
