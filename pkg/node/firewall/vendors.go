// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"path"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// vendor is how containers could get a vendor's devices without an allocation.
type vendor struct {
	// name is the vendor's domain. It is the domain of its extended resources, or the end of it.
	name string
	// selects are the variables that choose the devices. They are set in every container.
	selects []variable
	// extends are variables that add further devices to a container that has one of the vendor's
	// already. They are set in containers with an allocation.
	extends []variable
	// prefixes are the beginnings of names that choose devices, too, whatever follows. Such
	// variables are overridden where a container has them.
	prefixes []variable
	// cdiKinds are the kinds (vendor/class) of the CDI devices, as patterns of path.Match.
	cdiKinds []string
	// otherKinds are those among them that other software allocates, by the kubelet, and that are
	// no devices that anybody else manages.
	otherKinds []string
	// mountPaths begin the paths in a container at which a mount names a device.
	mountPaths []string
	// files are device files, of which a node with the vendor's driver has one.
	files []string
}

// variable is an environment variable.
type variable struct {
	name string
	// nothing is the value by which a container gets none of the devices.
	nothing string
}

// vendors are those whose container runtimes add devices on request. What they obey, and by which
// value they add nothing, is from their code:
//
//   - NVIDIA: nvidia-container-toolkit, internal/config/image. The value void makes the runtime
//     leave the container as it is; none would still add the driver's libraries. A mount below
//     /var/run/nvidia-container-devices counts by the beginning of its path alone. The test
//     test/integration/toolkit runs the toolkit itself.
//   - AMD: container-toolkit, internal/oci. What is no number and not all is ignored. A variable
//     whose name begins with DOCKER_RESOURCE_ counts, too, and the last one wins.
//   - Habana: habana-container-runtime, filterDevicesByENV and getDevicesFromEnvvar. No variable,
//     an empty one and void all stand for all devices, only none for none. The first variable
//     whose name begins so counts.
//   - Ascend: ascend-docker-runtime, checkVisibleDevice. Older releases refuse a container with
//     void; the empty value adds nothing in all of them. The name is compared without its spaces.
//
// Intel's GPUs and other devices have no such runtime: CDI is the only way.
var vendors = []*vendor{
	{
		name:    "nvidia.com",
		selects: []variable{{name: "NVIDIA_VISIBLE_DEVICES", nothing: "void"}},
		extends: []variable{
			{name: "NVIDIA_IMEX_CHANNELS", nothing: "void"},
			{name: "NVIDIA_MIG_CONFIG_DEVICES"},
			{name: "NVIDIA_MIG_MONITOR_DEVICES"},
			{name: "NVIDIA_GDS", nothing: "disabled"},
			{name: "NVIDIA_MOFED", nothing: "disabled"},
			{name: "NVIDIA_GDRCOPY", nothing: "disabled"},
			{name: "NVIDIA_NVSWITCH", nothing: "disabled"},
		},
		cdiKinds:   []string{"nvidia.com/*", "*.nvidia.com/*"},
		otherKinds: []string{"*compute-domain.nvidia.com/*"},
		mountPaths: []string{"/var/run/nvidia-container-devices"},
		files:      []string{"/dev/nvidiactl", "/dev/nvidia0", "/dev/nvhost-ctrl-gpu"},
	},
	{
		name:     "amd.com",
		selects:  []variable{{name: "AMD_VISIBLE_DEVICES", nothing: "none"}},
		prefixes: []variable{{name: "DOCKER_RESOURCE_", nothing: "none"}},
		cdiKinds: []string{"amd.com/*", "*.amd.com/*"},
		files:    []string{"/dev/kfd"},
	},
	{
		name:     "habana.ai",
		selects:  []variable{{name: "HABANA_VISIBLE_DEVICES", nothing: "none"}},
		prefixes: []variable{{name: "HABANA_VISIBLE_DEVICES", nothing: "none"}},
		cdiKinds: []string{"habana.ai/*", "*.habana.ai/*", "intel.com/gaudi"},
		files:    []string{"/dev/hl0", "/dev/accel/accel_controlD0"},
	},
	{
		name:     "huawei.com",
		selects:  []variable{{name: "ASCEND_VISIBLE_DEVICES"}},
		extends:  []variable{{name: "ASCEND_VNPU_SPECS"}},
		cdiKinds: []string{"huawei.com/*", "*.huawei.com/*"},
		files:    []string{"/dev/davinci_manager"},
	},
	{name: "gpu.intel.com", cdiKinds: []string{"gpu.intel.com/*", "intel.com/gpu"}},
	{name: "npu.intel.com", cdiKinds: []string{"npu.intel.com/*", "intel.com/npu"}},
	{name: "qat.intel.com", cdiKinds: []string{"qat.intel.com/*", "intel.com/qat"}},
}

// owns reports whether the extended resource is one of the vendor's.
func (v *vendor) owns(resource types.ResourceName) bool {
	domain := domainOf(resource)
	return domain == v.name || strings.HasSuffix(domain, "."+v.name)
}

// domainOf returns what stands before the slash in the name of an extended resource.
func domainOf(resource types.ResourceName) string {
	domain, _, _ := strings.Cut(string(resource), "/")
	return domain
}

// overrides returns the value that makes the variable of that name ask for nothing, if it is one of
// the vendor's. Runtimes may compare names without the spaces around them, which Kubernetes allows
// there.
func (v *vendor) overrides(name string) (nothing string, is bool) {
	trimmed := strings.TrimSpace(name)
	for _, list := range [][]variable{v.selects, v.extends} {
		for _, known := range list {
			if trimmed == known.name {
				return known.nothing, true
			}
		}
	}
	for _, known := range v.prefixes {
		if strings.HasPrefix(trimmed, known.name) {
			return known.nothing, true
		}
	}
	return "", false
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
