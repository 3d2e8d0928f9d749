// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"path"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// vendor is how containers could get a vendor's devices without an allocation.
type vendor struct {
	// name is the vendor's domain. It is the domain of its extended resources, or the end of it.
	name string
	// resources begin the names of further extended resources of the vendor's.
	resources []string
	// readers are how the programs of its container runtime read variables.
	readers []reader
	// cdiKinds are the kinds (vendor/class) of the CDI devices, as patterns of path.Match.
	cdiKinds []string
	// anyKind says that its runtime adds CDI devices of any vendor whose names it is given, and
	// foreignKinds, if it is not nil, that only this is guarded, for devices of these kinds.
	anyKind      bool
	foreignKinds []string
	// otherDrivers are the drivers of resource claims that give out CDI devices of these kinds, but
	// no devices that anybody else manages.
	otherDrivers []string
	// mountPaths begin the paths in a container at which a mount names a device.
	mountPaths []string
	// files are device files, of which a node with the vendor's driver has one.
	files []string
	// devices are patterns, as of filepath.Glob, of the files by which a container uses the
	// vendor's devices, and unlisted says that there may be others.
	devices  []string
	unlisted bool
	// setup is a command that makes the vendor's runtime the default one of the node, or empty.
	setup string
}

// vendors are those whose container runtimes add devices on request. What they obey is from their
// code, each at the commit that is named; paths are in it.
//
//   - NVIDIA: github.com/NVIDIA/nvidia-container-toolkit, v1.20.0 and d34b304 of August 2026.
//     internal/config/image, WithEnv fills a map, so the last variable of a name counts, and names
//     are compared as they are. The value void makes the runtime leave the container as it is; none
//     would still add the driver's libraries. Without the variable, an image of the old kind
//     (IsLegacy) requests all. internal/modifier/cdi.go has what adds to the devices of a container
//     that has some. A value may name CDI devices of any vendor (OnlyFullyQualifiedCDIDevices).
//     cmd/nvidia-cdi-hook/apply-cuda-memory-limits takes the first of its variables (internal/oci,
//     LookupEnv), and fails a container where one is empty. A mount below
//     /var/run/nvidia-container-devices counts by the beginning of its path alone
//     (requestsFromMounts). Annotations count below cdi.k8s.io/ or what annotation-prefixes says,
//     and for its NRI plugin (cmd/nvidia-ctk-installer/container/runtime/nri) nvidia.cdi.k8s.io
//     alone, with /pod or with /container.NAME. NVIDIA_REQUIRE_JETPACK=csv-mounts=all is left
//     alone: it adds, to a container with a device, what further files of root's in /etc list. The
//     test test/integration/toolkit runs the toolkit itself.
//   - AMD: github.com/ROCm/container-toolkit, v1.3.0 and 192fe8e of July 2026. internal/oci,
//     getAMDEnv: the last variable counts that has the one name or begins with DOCKER_RESOURCE_.
//     What is no number, no ID and not all is ignored (internal/gpu-tracker, parseGPUsList). It
//     reserves the GPUs of each (ReserveGPUs), which matters where the tracker makes them
//     exclusive.
//   - Xilinx: github.com/Xilinx/Xilinx_Container_Runtime, 2c8a3a2 of April 2022. src/cmd/xlnxcr.go,
//     getVisibleDevices and deviceExclusiveEnabled: the last of each name, and an empty one counts
//     as none. Its device plugin offers resources of amd.com, too.
//   - Habana: github.com/HabanaAI/habana-container-runtime, v1.15.0 (67e6737 of March 2024). In the
//     mode oci, cmd/habana-container-runtime, filterDevicesByENV takes the first entry that begins
//     with the name, without a value as all; without an entry it gives all, as
//     visible_devices_all_as_default is true by default. In the mode legacy,
//     cmd/habana-container-runtime-hook, getEnvMap and getDevicesFromEnvvar take the last variable
//     of exactly that name, where no variable, an empty one and void all stand for all devices, and
//     only none for none.
//   - Ascend: github.com/Ascend/mind-cluster, component/ascend-docker-runtime, v7.3.2 and 22bb3d9
//     of August 2026. runtime/process, getValueByDeviceKey: the last of the name. Before it was
//     github.com/Ascend/ascend-docker-runtime, c451124 of November 2023, runtime/main.go, which
//     prefers the first whose value contains Ascend, and refuses a container with void; the empty
//     value adds nothing in all of them. With VIRTUAL in the first ASCEND_RUNTIME_OPTIONS
//     (getValueByKey, addDevice), the numbers of a container's devices are those of virtual ones.
//     hook/process, parseSoftLinkMode: with the first ASCEND_ALLOW_LINK the hook mounts through
//     symbolic links of the image. runtime/dcmi, extractVpuParam compares names without blanks, and
//     fails a container where the value is empty. isMountByRuntimeForDP mounts the sockets of the
//     container runtimes into any container that has the variable, at any value. runtime/grus
//     (start.go, and Screate in restore.go; after v7.3.2) starts a container from the CRIU image in
//     a directory of the node that a variable names, host_snapshot_path and
//     GRUS_SNAPSHOT_IMAGE_PATH in other builds. The hook (hook/process, parseMounts and
//     readMountConfig) joins each element of ASCEND_RUNTIME_MOUNTS and ".list" to its directory
//     of lists, and mounts what the file lists; in the mode cdi (cdi/mount/file.go) also in a
//     container without a device. An element without a slash stays in that directory, which is
//     root's.
//
// Intel's GPUs and other devices have no such runtime: CDI is the only way.
var vendors = []*vendor{
	{
		name: "nvidia.com",
		readers: []reader{
			{
				names: []string{"NVIDIA_VISIBLE_DEVICES"}, takes: TakesLast, nothing: "void",
				others: []string{"", "none"}, unset: &unset{with: "CUDA_VERSION", without: "NVIDIA_REQUIRE_CUDA"},
			},
			{
				names: []string{"NVIDIA_IMEX_CHANNELS"}, takes: TakesLast, nothing: "void", others: []string{""},
				extends: true,
			},
			{names: []string{"NVIDIA_MIG_CONFIG_DEVICES"}, takes: TakesLast, extends: true},
			{names: []string{"NVIDIA_MIG_MONITOR_DEVICES"}, takes: TakesLast, extends: true},
			gate("NVIDIA_GDS"), gate("NVIDIA_MOFED"), gate("NVIDIA_GDRCOPY"), gate("NVIDIA_NVSWITCH"),
			{names: []string{"NVIDIA_GPU_MEMORY_REQUEST"}, takes: TakesFirst, harmful: true, extends: true},
			{names: []string{"NVIDIA_GPU_MEMORY_LIMIT"}, takes: TakesFirst, harmful: true, extends: true},
		},
		cdiKinds:     []string{"nvidia.com/*", "*.nvidia.com/*"},
		anyKind:      true,
		otherDrivers: []string{"compute-domain.nvidia.com"},
		mountPaths:   []string{"/var/run/nvidia-container-devices"},
		files:        []string{"/dev/nvidiactl", "/dev/nvidia0", "/dev/nvhost-ctrl-gpu"},
		devices:      []string{"/dev/nvidia*", "/dev/nvidia*/*", "/dev/nvhost*", "/dev/nvmap", "/dev/dri/*"},
		setup:        "nvidia-ctk runtime configure --set-as-default",
	},
	{
		name: "amd.com",
		readers: []reader{
			{
				names: []string{"AMD_VISIBLE_DEVICES", "DOCKER_RESOURCE_*"}, takes: TakesLast, reserves: true,
				nothing: "none", others: []string{"", "void"},
			},
		},
		cdiKinds: []string{"amd.com/*", "*.amd.com/*"},
		files:    []string{"/dev/kfd"},
		devices:  []string{"/dev/kfd", "/dev/dri/*"},
	},
	{
		name:      "xilinx.com",
		resources: []string{"amd.com/xilinx"},
		readers: []reader{
			{names: []string{"XILINX_VISIBLE_DEVICES"}, takes: TakesLast},
			{names: []string{"XILINX_VISIBLE_CARDS"}, takes: TakesLast},
			{names: []string{"XILINX_DEVICE_EXCLUSIVE"}, takes: TakesLast, extends: true},
		},
		cdiKinds: []string{"xilinx.com/*", "*.xilinx.com/*"},
		devices:  []string{"/dev/xclmgmt*", "/dev/xfpga/*", "/dev/dri/*"},
		unlisted: true,
	},
	{
		name: "habana.ai",
		readers: []reader{
			{
				names: []string{"HABANA_VISIBLE_DEVICES", "HABANA_VISIBLE_DEVICES*"}, takes: TakesFirst,
				nothing: "none", unset: &unset{},
			},
			{names: []string{"HABANA_VISIBLE_DEVICES"}, takes: TakesLast, nothing: "none", unset: &unset{}},
		},
		cdiKinds: []string{"habana.ai/*", "*.habana.ai/*", "intel.com/gaudi"},
		files:    []string{"/dev/hl0", "/dev/accel/accel_controlD0"},
		devices:  []string{"/dev/hl*", "/dev/accel/*"},
	},
	{
		name: "huawei.com",
		readers: []reader{
			{names: []string{"ASCEND_VISIBLE_DEVICES"}, takes: TakesLast},
			{names: []string{"ASCEND_VISIBLE_DEVICES"}, takes: TakesFirst, contains: "Ascend"},
			{
				names: []string{"ASCEND_RUNTIME_OPTIONS"}, takes: TakesFirst, harmful: true, permits: isNotVirtual,
				extends: true,
			},
			{names: []string{"ASCEND_ALLOW_LINK"}, takes: TakesFirst, harmful: true, permits: isNotTrue, extends: true},
			{names: []string{"ASCEND_VNPU_SPECS"}, blanks: true, takes: TakesAny, harmful: true, extends: true},
			{names: []string{"MOUNT_BY_RUNTIME_FOR_DP"}, takes: TakesAny, harmful: true},
			{names: []string{"host_snapshot_path"}, takes: TakesAny, harmful: true},
			{names: []string{"GRUS_SNAPSHOT_IMAGE_PATH"}, takes: TakesAny, harmful: true},
			{names: []string{"ASCEND_RUNTIME_MOUNTS"}, takes: TakesAny, harmful: true, permits: hasNoSlash},
		},
		cdiKinds: []string{"huawei.com/*", "*.huawei.com/*"},
		files:    []string{"/dev/davinci_manager"},
		devices:  []string{"/dev/davinci*", "/dev/devmm_svm", "/dev/hisi_hdc"},
	},
	{
		name: "gpu.intel.com", cdiKinds: []string{"gpu.intel.com/*", "intel.com/gpu"},
		devices: []string{"/dev/dri/*"},
	},
	{
		name: "npu.intel.com", cdiKinds: []string{"npu.intel.com/*", "intel.com/npu"},
		devices: []string{"/dev/accel/*"},
	},
	{
		name: "qat.intel.com", cdiKinds: []string{"qat.intel.com/*", "intel.com/qat"},
		devices: []string{"/dev/qat*", "/dev/vfio/*"},
	},
}

// gate returns the reader of a variable that lets NVIDIA's runtime add devices of one kind.
func gate(name string) reader {
	return reader{names: []string{name}, takes: TakesLast, nothing: "disabled", others: []string{""}, extends: true}
}

// hasNoSlash reports whether none of the names in a value leads out of a directory.
func hasNoSlash(value string) bool { return !strings.Contains(value, "/") }

// isNotVirtual reports whether the numbers of devices stay those of physical ones.
func isNotVirtual(options string) bool { return !strings.Contains(options, "VIRTUAL") }

// isNotTrue reports whether the value switches nothing on.
func isNotTrue(value string) bool { return value != "True" }

// owns reports whether the extended resource is one of the vendor's.
func (v *vendor) owns(resource types.ResourceName) bool {
	domain := domainOf(resource)
	return domain == v.name || strings.HasSuffix(domain, "."+v.name) ||
		slices.ContainsFunc(v.resources, func(start string) bool { return strings.HasPrefix(string(resource), start) })
}

// domainOf returns what stands before the slash in the name of an extended resource.
func domainOf(resource types.ResourceName) string {
	domain, _, _ := strings.Cut(string(resource), "/")
	return domain
}

// hasKind reports whether the CDI device is of one of the kinds.
func hasKind(kinds []string, device string) bool {
	kind, _, _ := strings.Cut(device, "=")
	for _, pattern := range kinds {
		if matched, err := path.Match(pattern, kind); err == nil && matched {
			return true
		}
	}
	return false
}
