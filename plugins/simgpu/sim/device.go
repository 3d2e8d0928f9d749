// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sim is the device side of simulated GPUs: an inventory that a YAML file describes, with a
// real device node for each GPU, so that a container's access to it can be proved.
package sim

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"github.com/kubedevice/kubedevice/plugins/gpu"
)

// VisibleDevices is the environment variable that lists the GPUs of a container, comma-separated.
const VisibleDevices = "SIMGPU_VISIBLE_DEVICES"

// Device is the simulated GPUs of this node. It reads its file for each inventory: what changes
// there, changes on the node.
type Device struct {
	file   string // or where the text is from
	inline []byte // in place of the file's content

	mu      sync.Mutex
	content []byte            // of the file, when it was last parsed; nil before
	config  Config            // what it says
	paths   map[string]string // of the device nodes, by ID
}

var (
	_ device.Device         = (*Device)(nil)
	_ device.ConcurrentSafe = (*Device)(nil)
	_ device.HealthReporter = (*Device)(nil)
	_ device.Attributed     = (*Device)(nil)
	_ device.UsageReporter  = (*Device)(nil)
)

// reasonSimulated is why a GPU is unhealthy.
const reasonSimulated = "Simulated"

// New returns the GPUs that a file describes. A source that begins with a brace is no path but what
// such a file would have, as YAML in one line.
func New(source string) *Device {
	if strings.HasPrefix(source, "{") {
		return &Device{file: "the text in its place", inline: []byte(source)}
	}
	return &Device{file: source}
}

// GetName returns the plugin's name.
func (d *Device) GetName() string { return "simgpu" }

// ConcurrentSafe is true: what the methods share is guarded.
func (d *Device) ConcurrentSafe() bool { return true }

// New does nothing: all is found in Start.
func (d *Device) New() error { return nil }

// Start reads the file and makes the device nodes.
func (d *Device) Start() error {
	_, err := d.load()
	return err
}

// UpdateNodeInfo reads the file again, makes the device nodes be what it says, and adds the GPUs.
func (d *Device) UpdateNodeInfo(nodeInfo *types.NodeInfo) error {
	config, err := d.load()
	if err != nil {
		return err
	}
	gpu.Publish(nodeInfo, config.ResourceName, config.gpus())
	return nil
}

// DeviceHealth returns the GPUs that the file says are unhealthy.
func (d *Device) DeviceHealth() ([]device.Health, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []device.Health
	for _, g := range d.config.gpus() {
		if g.Unhealthy {
			list = append(list, device.Health{
				Device: g.Name(), Reason: reasonSimulated, Message: "the simulation's file says so",
			})
		}
	}
	return list, nil
}

// DeviceAttributes returns the model that the file says.
func (d *Device) DeviceAttributes() (map[string]device.Attributes, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.config.Model == "" {
		return nil, nil
	}
	all := map[string]device.Attributes{}
	for _, g := range d.config.gpus() {
		all[g.Name()] = device.Attributes{"productName": device.String(d.config.Model)}
	}
	return all, nil
}

func (d *Device) load() (Config, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	config, err := d.read()
	if err != nil {
		return Config{}, err
	}
	paths := map[string]string{}
	var ids []string
	for _, g := range config.gpus() {
		paths[g.ID] = filepath.Join(config.DeviceDir, g.ID)
		ids = append(ids, g.ID)
	}
	if err := makeNodes(config.DeviceDir, ids, config.DeviceNumber); err != nil {
		return Config{}, err
	}
	d.paths = paths
	return config, nil
}

// read returns what the file says. A file that has not changed is not parsed again. The mutex is
// held.
func (d *Device) read() (Config, error) {
	content := d.inline
	if content == nil {
		var err error
		if content, err = os.ReadFile(d.file); err != nil {
			return Config{}, fmt.Errorf("read simulated GPUs: %w", err)
		}
	}
	if d.content != nil && bytes.Equal(content, d.content) {
		return d.config, nil
	}
	config, err := parseConfig(content)
	if err != nil {
		return Config{}, fmt.Errorf("read simulated GPUs from %s: %w", d.file, err)
	}
	d.content, d.config = content, config
	return config, nil
}

// Allocate returns the device nodes of the container's GPUs, and their names as environment
// variable. A GPU that turned unhealthy is still given: the scheduler chose it before, and a
// container that starts again keeps its devices.
func (d *Device) Allocate(
	_ *types.PodInfo,
	container *types.ContainerInfo,
) ([]device.Mount, []string, map[string]string, error) {
	ids := gpu.Allocated(container)
	if len(ids) == 0 {
		return nil, nil, nil, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var paths []string
	for _, id := range ids {
		path, ok := d.paths[id]
		if !ok {
			return nil, nil, nil, fmt.Errorf("this node has no simulated GPU %q: see %s", id, d.file)
		}
		paths = append(paths, path)
	}
	return nil, paths, map[string]string{VisibleDevices: strings.Join(ids, ",")}, nil
}
