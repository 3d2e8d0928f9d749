// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node is the device side of NVIDIA's GPUs: it reports which GPUs the node has and how they
// are joined, and shows a container those that it was given.
package node

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/sdk/utils"

	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvml"
)

// VisibleDevices is the environment variable by which NVIDIA's container runtime knows which GPUs a
// container sees.
const VisibleDevices = "NVIDIA_VISIBLE_DEVICES"

// Device is the GPUs of this node.
type Device struct {
	path string // of NVML

	mu          sync.Mutex
	library     *nvml.Library // nil until Start succeeded
	known       []gpu.GPU     // every GPU that ever answered, in the order in which they were found
	close, wide *groups
	problems    string // what was last said about GPUs that do not answer
	health      *health
}

var (
	_ device.Device         = (*Device)(nil)
	_ device.ConcurrentSafe = (*Device)(nil)
	_ device.Isolator       = (*Device)(nil)
	_ device.HealthReporter = (*Device)(nil)
)

// New returns the GPUs that the NVML at path knows. The faults that the driver reports once are
// kept in faultsFile; it may be empty.
func New(path, faultsFile string) *Device {
	return &Device{path: path, close: newGroups(), wide: newGroups(), health: newHealth(faultsFile)}
}

// GetName returns the plugin's name.
func (d *Device) GetName() string { return "nvidiagpu" }

// ConcurrentSafe is true: what the methods share is guarded.
func (d *Device) ConcurrentSafe() bool { return true }

// DenyEnvs hides all GPUs from NVIDIA's container runtime. Its value for "no GPUs" is void; an
// empty one would be the same, but none would still give the driver's libraries.
func (d *Device) DenyEnvs() map[string]string { return map[string]string{VisibleDevices: "void"} }

// New does nothing: whether there is a driver is asked in Start, which is tried again.
func (d *Device) New() error { return nil }

// Start opens NVML.
func (d *Device) Start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.library != nil {
		return nil
	}
	library, err := nvml.Open(d.path)
	if err != nil {
		return fmt.Errorf(

			"this node has no NVIDIA driver that answers (%w): install it, or remove the nvidiagpu plugin from this "+
				"node",
			err,
		)
	}
	d.library = library
	d.health.start(library)
	return nil
}

// UpdateNodeInfo asks for the GPUs and how they are, and adds them. A GPU that answered before and
// does not now is unhealthy until it answers again.
func (d *Device) UpdateNodeInfo(nodeInfo *types.NodeInfo) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.library == nil {
		return fmt.Errorf("look for NVIDIA GPUs: the driver has not been found yet")
	}
	present, problems, err := discover(d.library)
	if err != nil {
		return fmt.Errorf("look for NVIDIA GPUs: %w", err)
	}
	d.report(problems)
	if err := d.learn(present); err != nil {
		return fmt.Errorf("look how NVIDIA GPUs are joined: %w", err)
	}
	var missing []string
	for _, known := range d.known {
		if !slices.ContainsFunc(present, func(f found) bool { return f.uuid == known.ID }) {
			missing = append(missing, known.ID)
		}
	}
	d.health.update(present, missing)
	for i, known := range d.known {
		d.known[i].Unhealthy = !d.health.gpus[known.ID].health.Healthy
	}
	gpu.Publish(nodeInfo, gpu.Resource, d.known)
	return nil
}

// DeviceHealth returns how the GPUs were at the last UpdateNodeInfo, those whose health never
// changed aside.
func (d *Device) DeviceHealth() ([]device.Health, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []device.Health
	for _, known := range d.known {
		entry := d.health.gpus[known.ID].health
		if entry.Reason != "" {
			entry.Device = known.Name()
			list = append(list, entry)
		}
	}
	return list, nil
}

// report says what is wrong, once for as long as it stays the same.
func (d *Device) report(problems []error) {
	var texts []string
	for _, problem := range problems {
		texts = append(texts, problem.Error())
	}
	text := strings.Join(texts, "; ")
	if text != d.problems && text != "" {
		utils.Errorf("NVIDIA GPUs that do not answer are unhealthy: %s", text)
	}
	d.problems = text
}

// learn adds the GPUs that were not known, and their groups. Known ones keep theirs.
func (d *Device) learn(present []found) error {
	isNew := func(f found) bool {
		return !slices.ContainsFunc(d.known, func(known gpu.GPU) bool { return known.ID == f.uuid })
	}
	if !slices.ContainsFunc(present, isNew) {
		return nil
	}
	matrix := make([][]joined, len(present))
	uuids := make([]string, len(present))
	for i := range present {
		uuids[i], matrix[i] = present[i].uuid, make([]joined, len(present))
		for j := range i {
			how, err := join(present[i].device, present[j].device)
			if err != nil {
				return err
			}
			matrix[i][j], matrix[j][i] = how, how
		}
	}
	d.close.add(uuids, func(i, j int) bool { return matrix[i][j] == closely })
	d.wide.add(uuids, func(i, j int) bool { return matrix[i][j] != apart })
	for _, f := range present {
		if isNew(f) {
			d.known = append(d.known,
				gpu.GPU{ID: f.uuid, Memory: f.memory, Groups: []int{d.close.number[f.uuid], d.wide.number[f.uuid]}})
		}
	}
	return nil
}

// Allocate names the container's GPUs for NVIDIA's container runtime.
func (d *Device) Allocate(
	_ *types.PodInfo,
	container *types.ContainerInfo,
) ([]device.Mount, []string, map[string]string, error) {
	uuids := gpu.Allocated(container)
	if len(uuids) == 0 {
		return nil, nil, nil, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, uuid := range uuids {
		if !slices.ContainsFunc(d.known, func(known gpu.GPU) bool { return known.ID == uuid }) {
			return nil, nil, nil, fmt.Errorf("this node has no NVIDIA GPU %q: look at nvidia-smi -L there", uuid)
		}
	}
	return nil, nil, map[string]string{VisibleDevices: strings.Join(uuids, ",")}, nil
}
