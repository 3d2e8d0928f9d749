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
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/config"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvml"
)

// Paths are where the plugin finds things on its node.
type Paths struct {
	// NVML is NVIDIA's management library, a file or a name for the dynamic linker.
	NVML string
	// Faults keeps the faults that the driver reports once. It may be empty.
	Faults string
	// Config is the configuration.
	Config string
	// Minors lists the device nodes that give access to instances.
	Minors string
	// PCI has a link for each PCI device.
	PCI string
	// Release has the plugin let go of the driver while it is there. It may be empty.
	Release string
}

// DefaultPaths are the paths of a node that says nothing else.
func DefaultPaths() Paths {
	return Paths{
		NVML: nvml.DefaultLibrary, Faults: DefaultFaultsFile, Config: config.DefaultFile, Minors: defaultMinorsFile,
		PCI: defaultPCIDir, Release: DefaultReleaseFile,
	}
}

// Device is the GPUs of this node.
type Device struct {
	paths Paths

	mu          sync.Mutex
	library     *nvml.Library // nil until Start succeeded, and while it is released
	released    bool
	config      config.Config
	known       []known // every GPU that ever answered, in the order in which they were found
	close, wide *groups
	nvlink      *groups
	problems    string // what was last said about GPUs that do not answer
	health      *health
	holding     holding
	single      single
}

// known is a GPU that answered once. Its instances are those of the last answer.
type known struct {
	gpu.GPU
	minor     int
	device    nvml.Device // as of the last answer
	instances []nvml.Instance
	sampled   uint64 // the timestamp of the last sample of a process, 0 before the first

	described  bool // that attributes are all that can be known
	attributes device.Attributes
	linked     bool // by NVLink, to another GPU
}

var (
	_ device.Device         = (*Device)(nil)
	_ device.ConcurrentSafe = (*Device)(nil)
	_ device.Isolator       = (*Device)(nil)
	_ device.HealthReporter = (*Device)(nil)
	_ device.Reshaper       = (*Device)(nil)
	_ device.Attributed     = (*Device)(nil)
	_ device.UsageReporter  = (*Device)(nil)
)

// New returns the GPUs of a node.
func New(paths Paths) *Device {
	return &Device{
		paths: paths, close: newGroups(), wide: newGroups(), nvlink: newGroups(), health: newHealth(paths.Faults),
		holding: newHolding(),
	}
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

// Start reads the configuration and opens NVML.
func (d *Device) Start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.library != nil {
		return nil
	}
	if d.releaseWanted() {
		return fmt.Errorf("NVIDIA's driver is released, as %s is there: \"kubecri driver take\" removes it",
			d.paths.Release)
	}
	configuration, err := config.Read(d.paths.Config)
	if err != nil {
		return fmt.Errorf("read the configuration of NVIDIA GPUs: %w", err)
	}
	library, err := nvml.Open(d.paths.NVML)
	if err != nil {
		return fmt.Errorf(
			"this node has no NVIDIA driver that answers (%w): install it, or remove the nvidiagpu plugin from this "+
				"node",
			err,
		)
	}
	utils.Logf(0, "NVIDIA GPUs are offered with %s (%s)", configuration, d.paths.Config)
	for _, note := range configuration.Notes {
		utils.Logf(0, "%s: %s", d.paths.Config, note)
	}
	d.library, d.config = library, configuration
	d.health.start(library)
	return nil
}

// UpdateNodeInfo requests the GPUs and how they are, and adds them. A GPU that answered before and
// does not now is unhealthy until it answers again.
func (d *Device) UpdateNodeInfo(nodeInfo *types.NodeInfo) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.followRelease()
	if d.released {
		gpus, _ := d.offer()
		gpu.Publish(nodeInfo, gpu.Resource, gpus)
		return nil
	}
	if d.library == nil {
		return fmt.Errorf("find NVIDIA GPUs: the driver has not been found yet")
	}
	present, problems, err := discover(d.library)
	if err != nil {
		return fmt.Errorf("find NVIDIA GPUs: %w", err)
	}
	for i := range present {
		if k := d.find(present[i].uuid); k != nil && present[i].unlisted != nil {
			present[i].instances = k.instances
		}
	}
	problems = append(problems, d.partitionAll(present)...)
	if err := d.learn(present); err != nil {
		return fmt.Errorf("find how NVIDIA GPUs are joined: %w", err)
	}
	d.describeAll(present)
	var missing []string
	for _, known := range d.known {
		if !slices.ContainsFunc(present, func(f found) bool { return f.uuid == known.ID }) {
			missing = append(missing, known.ID)
		}
	}
	d.health.update(present, missing)
	if d.config.MIG == config.Single {
		if problem := d.chooseSingle(); problem != nil {
			problems = append(problems, problem)
		}
	}
	gpus, problem := d.offer()
	if problem != nil {
		problems = append(problems, problem)
	}
	d.report(problems)
	gpu.Publish(nodeInfo, gpu.Resource, gpus)
	return nil
}

// find returns the GPU of that UUID, nil when there is none.
func (d *Device) find(uuid string) *known {
	i := slices.IndexFunc(d.known, func(k known) bool { return k.ID == uuid })
	if i < 0 {
		return nil
	}
	return &d.known[i]
}

// DeviceHealth returns how the GPUs and instances were at the last UpdateNodeInfo, except those
// whose health never changed.
func (d *Device) DeviceHealth() ([]device.Health, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []device.Health
	add := func(name, uuid string) {
		entry := d.health.gpus[uuid].health
		if entry.Reason != "" {
			entry.Device = name
			list = append(list, entry)
		}
	}
	gpus, _ := d.offer()
	for _, g := range gpus {
		if !g.Partitioned {
			add(g.Name(), g.ID)
		}
		for _, instance := range g.Instances {
			add(g.InstanceName(instance), instance.ID)
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
		utils.Errorf("NVIDIA GPUs: %s", text)
	}
	d.problems = text
}

// learn adds the GPUs that were not known, and their groups, and notes how all are partitioned.
// Known ones keep their groups.
func (d *Device) learn(present []found) error {
	if slices.ContainsFunc(present, func(f found) bool { return d.find(f.uuid) == nil }) {
		if err := d.add(present); err != nil {
			return err
		}
	}
	for _, f := range present {
		k := d.find(f.uuid)
		k.Partitioned, k.instances, k.minor, k.device = f.partitioned, f.instances, f.minor, f.device
	}
	return nil
}

// add adds the GPUs that were not known, and their groups.
func (d *Device) add(present []found) error {
	matrix := make([][]connection, len(present))
	uuids := make([]string, len(present))
	for i := range present {
		uuids[i], matrix[i] = present[i].uuid, make([]connection, len(present))
		for j := range i {
			how, err := join(present[i].device, present[j].device)
			if err != nil {
				return err
			}
			matrix[i][j], matrix[j][i] = how, how
		}
	}
	d.close.add(uuids, func(i, j int) bool { return matrix[i][j].joined == closely })
	d.wide.add(uuids, func(i, j int) bool { return matrix[i][j].joined != apart })
	d.nvlink.add(uuids, func(i, j int) bool { return matrix[i][j].nvlink })
	for i, f := range present {
		linked := slices.ContainsFunc(matrix[i], func(c connection) bool { return c.nvlink })
		if k := d.find(f.uuid); k != nil {
			k.linked = k.linked || linked
		} else {
			d.known = append(d.known, known{linked: linked, GPU: gpu.GPU{
				ID: f.uuid, Memory: f.memory, Groups: []int{d.close.number[f.uuid], d.wide.number[f.uuid]},
			}})
		}
	}
	return nil
}
