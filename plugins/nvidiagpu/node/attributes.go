// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvml"
)

// defaultPCIDir is where Linux has a link for each PCI device, by its address.
const defaultPCIDir = "/sys/bus/pci/devices"

// The names of attributes that Kubernetes defines for all vendors: package deviceattribute of
// k8s.io/dynamic-resource-allocation. The others are those of NVIDIA's DRA driver.
const (
	busIDAttribute = "resource.kubernetes.io/pciBusID"
	rootAttribute  = "resource.kubernetes.io/pcieRoot"
	numaAttribute  = "resource.kubernetes.io/numaNode"
)

// DeviceAttributes returns what describes the GPUs and instances that the last UpdateNodeInfo
// reported. What is not known is absent.
func (d *Device) DeviceAttributes() (map[string]device.Attributes, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := map[string]device.Attributes{}
	gpus, _ := d.offer()
	for _, g := range gpus {
		k := d.find(g.ID)
		if !g.Partitioned {
			attributes := d.describeGPU(k)
			attributes["type"], attributes["uuid"] = device.String("gpu"), device.String(g.ID)
			all[g.Name()] = attributes
		}
		for _, offered := range g.Instances {
			attributes := d.describeGPU(k)
			attributes["type"], attributes["uuid"] = device.String("mig"), device.String(offered.ID)
			attributes["parentUUID"] = device.String(g.ID)
			for _, instance := range k.instances {
				if instance.UUID == offered.ID {
					attributes["profile"] = device.String(instance.Profile)
				}
			}
			all[g.InstanceName(offered)] = attributes
		}
	}
	return all, nil
}

// describeGPU returns a copy of the attributes of a GPU that its instances have, too.
func (d *Device) describeGPU(k *known) device.Attributes {
	attributes := device.Attributes{}
	maps.Copy(attributes, k.attributes)
	if k.linked {
		attributes["nvlinkDomain"] = device.Int(int64(d.nvlink.number[k.ID]))
	}
	return attributes
}

// describeAll requests the attributes of GPUs that have not answered completely yet. They do not
// change while the library is open.
func (d *Device) describeAll(present []found) {
	for _, f := range present {
		k := d.find(f.uuid)
		if k.described {
			continue
		}
		about, err := f.device.Describe()
		k.attributes, k.described = attributesOf(about, d.paths.PCI), err == nil
	}
}

// attributesOf returns the attributes of a GPU, with its place in the machine as Linux says it.
func attributesOf(about nvml.Description, pciDir string) device.Attributes {
	attributes := device.Attributes{}
	for name, text := range map[string]string{
		"productName": about.Name, "brand": about.Brand, "architecture": about.Architecture,
		busIDAttribute: about.Address, rootAttribute: pcieRoot(pciDir, about.Address),
	} {
		if text != "" {
			attributes[name] = device.String(text)
		}
	}
	for name, text := range map[string]string{
		"cudaComputeCapability": about.ComputeCapability, "driverVersion": about.Driver,
		"cudaDriverVersion": about.CUDA,
	} {
		if version, ok := semantic(text); ok {
			attributes[name] = device.Version(version)
		}
	}
	if node, ok := numaNode(pciDir, about.Address); ok {
		attributes[numaAttribute] = device.Int(int64(node))
	}
	return attributes
}

// semantic returns a version of two or three numbers as one of Semantic Versioning, which has three
// without leading zeros: 580.159.4 of 580.159.04, 9.0.0 of 9.0.
func semantic(text string) (version string, ok bool) {
	parts := strings.Split(text, ".")
	if len(parts) < 2 || len(parts) > 3 {
		return "", false
	}
	for i, part := range parts {
		number, err := strconv.ParseUint(part, 10, 32)
		if err != nil {
			return "", false
		}
		parts[i] = strconv.FormatUint(number, 10)
	}
	if len(parts) == 2 {
		parts = append(parts, "0")
	}
	return strings.Join(parts, "."), true
}

// rootPattern is the name of a PCIe root in /sys.
var rootPattern = regexp.MustCompile(`^pci[0-9a-f]{4,8}:[0-9a-f]{2}$`)

// pcieRoot returns the root complex that the device of that address hangs at, such as pci0000:00,
// or "" where that is not known.
func pcieRoot(pciDir, address string) string {
	if address == "" {
		return ""
	}
	path, err := filepath.EvalSymlinks(filepath.Join(pciDir, address))
	if err != nil {
		return ""
	}
	for segment := range strings.SplitSeq(path, "/") {
		if rootPattern.MatchString(segment) {
			return segment
		}
	}
	return ""
}

// numaNode returns the NUMA node of the device of that address. Linux has -1 where the firmware
// does not say, as in most virtual machines.
func numaNode(pciDir, address string) (node int, known bool) {
	if address == "" {
		return 0, false
	}
	content, err := os.ReadFile(filepath.Join(pciDir, address, "numa_node"))
	if err != nil {
		return 0, false
	}
	node, err = strconv.Atoi(strings.TrimSpace(string(content)))
	return node, err == nil && node >= 0
}
