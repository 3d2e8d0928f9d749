// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package vendors

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// What the machine has of Intel's is half on NUMA node 0 and half on node 1, but for the one DLB
// and the one FPGA.

func intelGPU(t tree) Plugin {
	p := Plugin{Name: "gpu_plugin", Args: []string{"-v=4"}}
	for i, address := range []string{"0000:03:00.0", "0000:04:00.0", "0000:83:00.0", "0000:84:00.0"} {
		directory := t.pci(address, i/2, map[string]string{"vendor": "0x8086", "device": "0x56c0"})
		t.driver(directory, "i915")
		card, render := fmt.Sprintf("card%d", i), fmt.Sprintf("renderD%d", 128+i)
		for minor, name := range map[int]string{i: card, 128 + i: render} {
			drm := directory + "/drm/" + name
			t[drm+"/device"] = entry{link: directory}
			t["/sys/class/drm/"+name] = entry{link: drm}
			t.node("/dev/dri/"+name, majorGPU, uint32(minor), drm)
		}
		byPath := "/dev/dri/by-path/pci-" + address
		t[byPath+"-card"] = entry{link: "../" + card}
		t[byPath+"-render"] = entry{link: "../" + render}
		p.Devices = append(p.Devices, Device{
			Resource: "gpu.intel.com/i915", ID: card + "-0", NUMA: []int{i / 2},
			Nodes:  []string{"/dev/dri/" + card, "/dev/dri/" + render},
			Mounts: []string{byPath + "-card", byPath + "-render"},
		})
	}
	return p
}

func intelNPU(t tree) Plugin {
	p := Plugin{Name: "npu_plugin", Args: []string{"-v=4"}}
	for i, address := range []string{"0000:05:00.0", "0000:85:00.0"} {
		directory := t.pci(address, i, map[string]string{"vendor": "0x8086", "device": "0x643e"})
		name := fmt.Sprintf("accel%d", i)
		accel := directory + "/accel/" + name
		t[accel+"/device"] = entry{link: directory}
		t["/sys/class/accel/"+name] = entry{link: accel}
		t.node("/dev/accel/"+name, majorNPU, uint32(i), accel)
		p.Devices = append(p.Devices, Device{Resource: "npu.intel.com/accel", ID: name + "-0", NUMA: []int{i},
			Nodes: []string{"/dev/accel/" + name}})
	}
	return p
}

// intelSGX has two device nodes for the whole machine, which any number of containers share: its
// devices are only a count.
func intelSGX(t tree) Plugin {
	p := Plugin{Name: "sgx_plugin", Args: []string{"-v=4", "-enclave-limit=3", "-provision-limit=2"}}
	for minor, kind := range []string{"enclave", "provision"} {
		path := "/dev/sgx_" + kind
		t.node(path, majorSGX, uint32(minor), "/sys/devices/virtual/misc/sgx_"+kind)
		for i := range 3 - minor {
			p.Devices = append(p.Devices, Device{
				Resource: types.ResourceName("sgx.intel.com/" + kind), ID: fmt.Sprintf("sgx-%s-%d", kind, i),
				Nodes: []string{path},
			})
		}
	}
	return p
}

func intelDSA(t tree) Plugin {
	p := Plugin{Name: "dsa_plugin", Args: []string{"-v=4"}}
	for i, address := range []string{"0000:6a:01.0", "0000:e7:01.0"} {
		accelerator := fmt.Sprintf("dsa%d", i)
		directory := t.pci(address, i, map[string]string{"vendor": "0x8086", "device": "0x0b25"}) + "/" + accelerator
		t["/sys/bus/dsa/devices/"+accelerator] = entry{link: directory}
		for q := range 2 {
			queue := fmt.Sprintf("wq%d.%d", i, q)
			for name, content := range map[string]string{"state": "enabled", "mode": "dedicated", "type": "user"} {
				t[directory+"/"+queue+"/"+name] = entry{content: content}
			}
			minor := uint32(2*i + q)
			t.node("/dev/dsa/"+queue, majorDSA, minor, directory+"/"+queue)
			p.Devices = append(p.Devices, Device{
				Resource: "dsa.intel.com/wq-user-dedicated", ID: "wq-user-dedicated-" + queue + "-0", NUMA: []int{i},
				Nodes: []string{"/dev/dsa/" + queue, fmt.Sprintf("/dev/char/%d:%d", majorDSA, minor)},
			})
		}
	}
	return p
}

// intelDLB names its devices by path.
func intelDLB(t tree) Plugin {
	directory := t.pci("0000:6d:00.0", 0, map[string]string{"vendor": "0x8086", "device": "0x2710",
		"sriov_numvfs": "0"})
	dlb := directory + "/dlb2/dlb0"
	t[dlb+"/device"] = entry{link: directory}
	t["/sys/class/dlb2/dlb0"] = entry{link: dlb}
	t.node("/dev/dlb0", majorDLB, 0, dlb)
	return Plugin{Name: "dlb_plugin", Args: []string{"-v=4"}, Devices: []Device{
		{Resource: "dlb.intel.com/pf", ID: "/dev/dlb0", NUMA: []int{0}, Nodes: []string{"/dev/dlb0"}},
	}}
}

// qatFunctions are the physical functions of QAT, one on each NUMA node. Each has two virtual ones,
// which are what containers get.
var qatFunctions = []string{"0000:6b:00.0", "0000:e8:00.0"}

func intelQAT(t tree) Plugin {
	p := Plugin{Name: "qat_plugin", Args: []string{"-v=4"}}
	t["/dev/vfio/vfio"] = entry{major: 10, minor: 196}
	t["/sys/dev/char/10:196"] = entry{link: "/sys/devices/virtual/misc/vfio"}
	t["/sys/devices/virtual/misc/vfio"] = entry{directory: true}
	for numa, address := range qatFunctions {
		physical := t.pci(address, numa, map[string]string{
			"vendor": "0x8086", "device": "0x4940", "qat/state": "up", "qat/cfg_services": "sym;asym",
			"qat/num_rps": "0",
		})
		t.driver(physical, "4xxx")
		t[qatHeartbeat(address)] = entry{content: "0"}
		for i := range 2 {
			address := fmt.Sprintf("%s%d", strings.TrimSuffix(address, "0"), i+1)
			virtual := t.pci(address, numa, map[string]string{"vendor": "0x8086", "device": "0x4941"})
			t.driver(virtual, "vfio-pci")
			t[virtual+"/physfn"] = entry{link: physical}
			t[fmt.Sprintf("%s/virtfn%d", physical, i)] = entry{link: virtual}
			number := 7 + 2*numa + i
			group := fmt.Sprintf("/sys/kernel/iommu_groups/%d", number)
			t[virtual+"/iommu_group"] = entry{link: group}
			t[group+"/devices/"+address] = entry{link: virtual}
			node := fmt.Sprintf("/dev/vfio/%d", number)
			t.node(node, majorQAT, uint32(number), fmt.Sprintf("/sys/devices/virtual/vfio/%d", number))
			p.Devices = append(p.Devices, Device{
				Resource: "qat.intel.com/cy", ID: address, NUMA: []int{numa},
				Nodes: []string{node, "/dev/vfio/vfio"}, Envs: map[string]string{"QAT0": address},
			})
		}
	}
	return p
}

func qatHeartbeat(address string) string {
	return "/sys/kernel/debug/qat_4xxx_" + address + "/heartbeat/status"
}

// SetQATHealth makes the QAT function on a NUMA node send heartbeats, or stop. The plugin looks
// every five seconds.
func (m *Machine) SetQATHealth(numa int, healthy bool) error {
	status := "-1"
	if healthy {
		status = "0"
	}
	path := strings.TrimPrefix(qatHeartbeat(qatFunctions[numa]), "/sys")
	return os.WriteFile(filepath.Join(m.Sys(), path), []byte(status+"\n"), 0o644)
}

// The FPGA's interface, and the function that it is programmed with.
const (
	fpgaInterface = "69528db6eb31577a8c3668f9faa081f6"
	fpgaFunction  = "d8424dc4a4a3c413f89e433683f9040b"
)

// intelFPGA serves, in its mode "af", what FPGAs are programmed with: interface and function are
// the resource's name.
func intelFPGA(t tree) Plugin {
	directory := t.pci("0000:3b:00.0", 0, map[string]string{"class": "0x120000", "vendor": "0x8086",
		"device": "0x0b30"})
	region := directory + "/fpga_region/region0"
	t["/sys/class/fpga_region/region0"] = entry{link: region}
	t[region+"/dfl-fme.0/dfl-fme-region.1/fpga_region/region1/compat_id"] = entry{content: fpgaInterface}
	t[region+"/dfl-port.0/afu_id"] = entry{content: fpgaFunction}
	t.node("/dev/dfl-fme.0", majorFPGA, 0, region+"/dfl-fme.0")
	t.node("/dev/dfl-port.0", majorFPGA, 1, region+"/dfl-port.0")
	ids, err := hex.DecodeString(fpgaInterface + fpgaFunction)
	if err != nil {
		panic(err) // they are constants
	}
	resource := "fpga.intel.com/af-" + fpgaInterface[:3] + "." + fpgaFunction[:3] + "." +
		base64.RawURLEncoding.EncodeToString(ids)
	return Plugin{Name: "fpga_plugin", Args: []string{"-v=4", "-mode=af"}, Devices: []Device{
		{Resource: types.ResourceName(resource), ID: "dfl-port.0", NUMA: []int{0}, Nodes: []string{"/dev/dfl-port.0"}},
	}}
}
