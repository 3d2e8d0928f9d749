// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vendors has device plugins of hardware vendors, as their makers publish them, and the
// machine that they are shown: one with two NUMA nodes and a few devices of each kind. What the
// machine has is made up; that a plugin takes it for real is what counts.
//
// A plugin that is started sees the machine's /sys and /dev in place of the real ones, and
// kubecri's directory in place of the kubelet's, as from a DaemonSet that mounts it.
package vendors

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/test/binaries"
)

// Plugin is a vendor's device plugin.
type Plugin struct {
	// Name is the name of its program.
	Name string
	// Args and Env are the arguments and environment variables (NAME=value) that it is started
	// with.
	Args, Env []string
	// Registry says that it registers by sockets, in [KubeletRegistry]. Others call Register, in
	// [KubeletDirectory].
	Registry bool
	// HideRDMA says that it is to be started on a kernel that cannot be queried about RDMA, see
	// [sandbox.HideRDMA].
	HideRDMA bool
	// Devices are what it finds on the machine.
	Devices []Device
}

// Device is a device as its plugin lists it, and what Allocate gives for it.
type Device struct {
	Resource types.ResourceName
	// ID is the plugin's name for it.
	ID string
	// NUMA are the NUMA nodes that the plugin reports, in ascending order; none if it reports no
	// topology.
	NUMA []int
	// Nodes are the device nodes that a container gets, by their paths there, in any order.
	Nodes []string
	// Mounts are the paths that are mounted into a container.
	Mounts []string
	// Envs are the environment variables that a container gets.
	Envs map[string]string
}

// Path is where the program is, in the directory of what package binaries built.
func (p Plugin) Path(programs string) string {
	return filepath.Join(programs, string(binaries.DevicePlugins), p.Name)
}

// Resources are those that the plugin registers, with the devices of each.
func (p Plugin) Resources() map[types.ResourceName][]Device {
	all := map[types.ResourceName][]Device{}
	for _, device := range p.Devices {
		all[device.Resource] = append(all[device.Resource], device)
	}
	return all
}

// KubeletDirectory is the kubelet's directory for plugins that call Register, KubeletRegistry that
// for plugins which register by sockets, and SpecDir is where some keep CDI files.
const (
	KubeletDirectory = "/var/lib/kubelet/device-plugins"
	KubeletRegistry  = "/var/lib/kubelet/plugins_registry"
	SpecDir          = "/var/run/cdi"
)

// Machine is a fixture: a simulated machine.
type Machine struct {
	// Plugins are the plugins for what it has, in no order that matters.
	Plugins []Plugin

	dir  string
	tree tree
}

// NewMachine makes a machine below a directory: what programs are to see as /sys is in its
// directory sys then. Its device nodes are not made yet: see MakeNodes. library is a fake of
// NVIDIA's management library, with [GPUs] GPUs.
func NewMachine(dir, library string) (*Machine, error) {
	m := &Machine{dir: dir, tree: tree{}}
	for _, kind := range []func(tree) Plugin{intelGPU, intelNPU, intelSGX, intelDSA, intelDLB, intelQAT, intelFPGA} {
		m.Plugins = append(m.Plugins, kind(m.tree))
	}
	driver := filepath.Join(dir, "driver")
	rdma, err := mellanoxRDMA(m.tree, dir)
	if err != nil {
		return nil, err
	}
	m.Plugins = append(m.Plugins, nvidia(m.tree, driver), rdma, sample())
	if err := m.tree.write("/sys", m.Sys()); err != nil {
		return nil, err
	}
	libraries := filepath.Join(driver, "usr", "lib64")
	if err := os.MkdirAll(libraries, 0o755); err != nil {
		return nil, err
	}
	return m, os.Symlink(library, filepath.Join(libraries, "libnvidia-ml.so.1"))
}

// SetPlugin has the plugin in the place of the one of the same name.
func (m *Machine) SetPlugin(plugin Plugin) {
	at := slices.IndexFunc(m.Plugins, func(p Plugin) bool { return p.Name == plugin.Name })
	m.Plugins[at] = plugin
}

// TimeSliced returns NVIDIA's plugin with a configuration by which it offers each GPU so many
// times.
func (m *Machine) TimeSliced(shares int) (Plugin, error) {
	file := filepath.Join(m.dir, "time-slicing.yaml")
	content := fmt.Sprintf(timeSlicing, shares)
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		return Plugin{}, err
	}
	plugin := m.Plugin(NVIDIA)
	plugin.Args = append(slices.Clone(plugin.Args), "--config-file="+file)
	var devices []Device
	for _, gpu := range plugin.Devices {
		for i := range shares {
			share := gpu
			share.ID = fmt.Sprintf("%s::%d", gpu.ID, i)
			devices = append(devices, share)
		}
	}
	plugin.Devices = devices
	return plugin, nil
}

// Sys is the directory that programs are to see as /sys.
func (m *Machine) Sys() string { return filepath.Join(m.dir, "sys") }

// MakeNodes makes the machine's device nodes in a directory, which is to be /dev or to be seen as
// /dev. It needs root.
func (m *Machine) MakeNodes(dev string) error { return m.tree.write("/dev", dev) }

// Nodes are the numbers of the device nodes, major and minor, by path.
func (m *Machine) Nodes() map[string][2]uint32 {
	numbers := map[string][2]uint32{}
	for path, e := range m.tree {
		if e.major != 0 {
			numbers[path] = [2]uint32{e.major, e.minor}
		}
	}
	return numbers
}

// Plugin returns the plugin of that name.
func (m *Machine) Plugin(name string) Plugin {
	for _, plugin := range m.Plugins {
		if plugin.Name == name {
			return plugin
		}
	}
	return Plugin{}
}
