// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package vendors

import (
	"fmt"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
)

// GPUs are how many GPUs of NVIDIA's the machine has: the first half on NUMA node 0, the others on
// node 1.
const GPUs = 4

// NVML describes the machine's GPUs to builders of the fake of NVIDIA's management
// library.
func NVML() nvmltest.Machine {
	// as nvml.h has it: 40 is a NUMA node, 50 the machine
	return nvmltest.Machine{Ancestor: nvmltest.Matrix(GPUs, func(i, j int) int {
		if i/2 == j/2 {
			return 40
		}
		return 50
	})}
}

// NVIDIA is the name of NVIDIA's plugin.
const NVIDIA = "nvidia-device-plugin"

// timeSlicing is its configuration for shares of GPUs, of which each has so many.
const timeSlicing = `version: v1
sharing:
  timeSlicing:
    resources:
    - name: nvidia.com/gpu
      replicas: %d
`

// nvidia gives containers device nodes by itself, as where NVIDIA's container runtime is not there
// to do it. driver is the directory with the driver's libraries.
func nvidia(t tree, driver string) Plugin {
	p := Plugin{Name: NVIDIA, Args: []string{
		"--pass-device-specs", "--driver-root-ctr-path=" + driver, "--gdrcopy-enabled=false", "--gds-enabled=false",
		"--mofed-enabled=false",
	}}
	const control = "/dev/nvidiactl"
	t[control] = entry{major: majorNVIDIA, minor: 255}
	for i := range GPUs {
		node := fmt.Sprintf("/dev/nvidia%d", i)
		t.node(node, majorNVIDIA, uint32(i), t.pci(nvmltest.Address(i), i/2, map[string]string{"vendor": "0x10de"}))
		p.Devices = append(p.Devices, Device{
			Resource: "nvidia.com/gpu", ID: nvmltest.UUID(i), NUMA: []int{i / 2},
			Nodes: []string{node, control}, Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": nvmltest.UUID(i)},
		})
	}
	return p
}

// sample is Kubernetes' own example. Its devices are files, which Allocate makes in /tmp.
func sample() Plugin {
	p := Plugin{Name: "sample-device-plugin"}
	for _, id := range []string{"Dev-1", "Dev-2"} {
		p.Devices = append(p.Devices, Device{Resource: "example.com/resource", ID: id, Mounts: []string{"/tmp/" + id}})
	}
	return p
}
