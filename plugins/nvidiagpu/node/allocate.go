// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/config"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvml"
)

// VisibleDevices is the environment variable by which NVIDIA's container runtime knows which GPUs
// and instances a container sees.
const VisibleDevices = "NVIDIA_VISIBLE_DEVICES"

// noDevices is the value of VisibleDevices for which NVIDIA's container runtime leaves a container
// as it is.
const noDevices = "void"

// cdiKind is the kind of the CDI devices that nvidia-ctk cdi generate describes. Their names are
// the UUIDs of GPUs and instances, among others.
const cdiKind = "nvidia.com/gpu"

// visibleMounts is the value of VisibleDevices, and the directory in which a mount for each device
// has its UUID as the name.
const visibleMounts = "/var/run/nvidia-container-devices"

// controlNodes are the device nodes that a container needs in addition to those of its GPUs, where
// the driver has made them.
var controlNodes = []string{
	"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset",
}

var _ device.Allocator = (*Device)(nil)

// AllocateContainer implements device.Allocator: Allocate, with CDI devices where the configuration
// says so. The container runtime refuses a container with one that no CDI file describes.
func (d *Device) AllocateContainer(pod *types.PodInfo, container *types.ContainerInfo) (*device.Allocation, error) {
	mounts, nodes, envs, err := d.Allocate(pod, container)
	if err != nil || envs == nil {
		return nil, err
	}
	allocation := &device.Allocation{Envs: envs}
	for _, m := range mounts {
		allocation.Mounts = append(allocation.Mounts, device.HostMount{
			HostPath: m.HostPath, ContainerPath: m.ContainerPath, Readonly: m.Readonly,
		})
	}
	for _, node := range nodes {
		allocation.Devices = append(allocation.Devices, device.HostDevice{HostPath: node})
	}
	if d.config.CDI {
		for _, uuid := range slices.Concat(gpu.Allocated(container), gpu.Instances(container)) {
			allocation.CDIDevices = append(allocation.CDIDevices, cdiKind+"="+uuid)
		}
	}
	return allocation, nil
}

// Allocate names the container's GPUs and instances for NVIDIA's container runtime, as the
// configuration says. With CDI devices alone, it names none.
func (d *Device) Allocate(
	_ *types.PodInfo,
	container *types.ContainerInfo,
) ([]device.Mount, []string, map[string]string, error) {
	gpus, instances := gpu.Allocated(container), gpu.Instances(container)
	uuids := slices.Concat(gpus, instances)
	if len(uuids) == 0 {
		return nil, nil, nil, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var nodes []string
	add := func(k known, more ...string) error {
		if d.config.PassDeviceSpecs && k.minor == unknownMinor {
			return fmt.Errorf("NVIDIA GPU %q: the driver does not say which device node it has: "+
				"set passDeviceSpecs to false", k.ID)
		}
		nodes = append(append(nodes, gpuNode(k)), more...)
		return nil
	}
	for _, uuid := range gpus {
		k := d.find(uuid)
		if k == nil {
			return nil, nil, nil, fmt.Errorf("this node has no NVIDIA GPU %q: see nvidia-smi -L there", uuid)
		}
		if k.Partitioned {
			return nil, nil, nil, fmt.Errorf("NVIDIA GPU %q has been partitioned since it was allocated: no container "+
				"is given all of it; delete the pod", uuid)
		}
		if err := add(*k); err != nil {
			return nil, nil, nil, err
		}
	}
	for _, uuid := range instances {
		k, instance := d.findInstance(uuid)
		if k == nil {
			return nil, nil, nil, fmt.Errorf("this node has no MIG instance %q: see nvidia-smi -L there; "+
				"if it was destroyed, delete the pod", uuid)
		}
		capabilities, err := d.capabilities(*k, instance)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("allow access to MIG instance %q: %w", uuid, err)
		}
		if err := add(*k, capabilities...); err != nil {
			return nil, nil, nil, err
		}
	}
	envs, mounts := list(d.config, uuids)
	if !d.config.PassDeviceSpecs {
		return mounts, nil, envs, nil
	}
	for _, node := range controlNodes {
		if exists(node) {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return mounts, slices.Compact(nodes), envs, nil
}

// capabilities returns the device nodes that give access to an instance, where they are passed.
func (d *Device) capabilities(k known, instance nvml.Instance) ([]string, error) {
	if !d.config.PassDeviceSpecs {
		return nil, nil
	}
	return instanceNodes(d.paths.Minors, k.minor, instance)
}

// list returns the variable and the mounts by which the runtime knows the devices. The variable
// overrides that of the image, which in NVIDIA's images requests all GPUs.
func list(c config.Config, uuids []string) (envs map[string]string, mounts []device.Mount) {
	envs = map[string]string{VisibleDevices: noDevices}
	if c.EnvVar {
		envs[VisibleDevices] = strings.Join(uuids, ",")
	}
	if c.VolumeMounts {
		if !c.EnvVar {
			envs[VisibleDevices] = visibleMounts
		}
		for _, uuid := range uuids {
			mounts = append(mounts, device.Mount{HostPath: "/dev/null", ContainerPath: visibleMounts + "/" + uuid})
		}
	}
	return envs, mounts
}

// findInstance returns the instance of that UUID and its GPU, nil when no GPU that is partitioned
// has it.
func (d *Device) findInstance(uuid string) (*known, nvml.Instance) {
	for i := range d.known {
		k := &d.known[i]
		for _, instance := range k.instances {
			if k.Partitioned && instance.UUID == uuid {
				return k, instance
			}
		}
	}
	return nil, nvml.Instance{}
}
