// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package hosting

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubedevice/kubedevice/pkg/node/devicemanager"
	"github.com/kubedevice/kubedevice/test/vendors"
)

func TestEveryPluginRegistersListsItsDevicesAndAllocatesExactlyThoseThatWereChosen(t *testing.T) {
	s := newFixture(t)
	for _, plugin := range s.Plugins {
		t.Run(plugin.Name, func(t *testing.T) {
			kill := s.start(t, plugin)
			s.awaitPlugin(t, plugin)
			for _, device := range plugin.Devices {
				s.expectAllocation(t, device)
			}

			kill()
			for resource, devices := range plugin.Resources() {
				s.awaitDevices(t, resource, devices, none)
			}
			s.start(t, plugin)
			s.awaitPlugin(t, plugin)
		})
	}
}

// expectAllocation lets the plugin allocate a device, and compares its answer with what it should
// be.
func (s *fixture) expectAllocation(t *testing.T, device vendors.Device) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	answer, err := s.manager.Allocate(ctx, device.Resource, []string{device.ID}, "pod/main")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.manager.PreStart(ctx, device.Resource, []string{device.ID}); err != nil {
		t.Error(err)
	}
	allocation, err := devicemanager.Decode(answer)
	if err != nil {
		t.Fatal(err)
	}
	got := vendors.Device{Resource: device.Resource, ID: device.ID, NUMA: device.NUMA, Envs: allocation.Envs}
	for _, node := range allocation.Devices {
		if node.HostPath != node.ContainerPath || !strings.HasPrefix(node.Permissions, "rw") {
			t.Errorf("device %s: %+v is not a node at its own path, to be read and written", device.ID, node)
		}
		got.Nodes = append(got.Nodes, node.ContainerPath)
	}
	slices.Sort(got.Nodes)
	got.Nodes = slices.Compact(got.Nodes) // Mellanox's passes one for each adapter
	for _, mount := range allocation.Mounts {
		got.Mounts = append(got.Mounts, mount.ContainerPath)
	}
	if diff := cmp.Diff(device, got, cmpopts.EquateEmpty(),
		cmpopts.SortSlices(func(a, b string) bool { return a < b })); diff != "" {
		t.Errorf("what Allocate gives for %s of %s (-want +got):\n%s", device.ID, device.Resource, diff)
	}
}

func TestPluginsRegisterAgainByThemselvesWhenTheHostIsAnother(t *testing.T) {
	s := newFixture(t)
	for _, plugin := range s.Plugins {
		s.start(t, plugin)
	}
	for _, plugin := range s.Plugins {
		s.awaitPlugin(t, plugin)
	}

	s.serve(t)

	for _, plugin := range s.Plugins {
		s.awaitPlugin(t, plugin)
		s.expectAllocation(t, plugin.Devices[0])
	}
}

func TestAnUnhealthyDeviceLeavesAloneAndComesBackWhenItIsHealthy(t *testing.T) {
	t.Run("a GPU of NVIDIA's falls off the bus, is repaired, and the plugin is started again", func(t *testing.T) {
		s := newFixture(t)
		plugin := s.Plugin("nvidia-device-plugin")
		kill := s.start(t, plugin)
		s.awaitPlugin(t, plugin)
		const broken = 2

		s.nvml.Break(t, broken, 79)

		s.awaitDevices(t, "nvidia.com/gpu", plugin.Devices,
			func(d vendors.Device) bool { return d.ID != plugin.Devices[broken].ID })
		kill()
		s.nvml.Repair(t)
		s.start(t, plugin)
		s.awaitPlugin(t, plugin)
	})
	t.Run("the heart of a QAT function stops and beats again", func(t *testing.T) {
		s := newFixture(t)
		plugin := s.Plugin("qat_plugin")
		s.start(t, plugin)
		s.awaitPlugin(t, plugin)

		setHealth := func(healthy bool) {
			if err := s.SetQATHealth(0, healthy); err != nil {
				t.Fatal(err)
			}
		}
		setHealth(false)
		s.awaitDevices(t, "qat.intel.com/cy", plugin.Devices,
			func(d vendors.Device) bool { return !slices.Contains(d.NUMA, 0) })
		setHealth(true)
		s.awaitPlugin(t, plugin)
	})
}
