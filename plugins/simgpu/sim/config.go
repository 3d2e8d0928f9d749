// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"github.com/kubedevice/kubedevice/plugins/gpu"
)

// DefaultConfigFile is where the configuration is when nothing else is said.
const DefaultConfigFile = "/etc/kubedevice/simgpu.yaml"

// maxGPUs bounds the GPUs of one node.
const maxGPUs = 1024

// Config is the simulated GPUs of one node, as its YAML file says.
type Config struct {
	// Count is the number of GPUs. They are called <idPrefix>0, <idPrefix>1, …
	Count int `json:"count"`
	// IDPrefix begins the GPUs' names. Default: sim-
	IDPrefix string `json:"idPrefix"`
	// Memory of each GPU, as a Kubernetes quantity. Default: 16Gi
	Memory resource.Quantity `json:"memory"`
	// Model is the attribute productName of each GPU. Default: none
	Model string `json:"model"`
	// Topology gives the sizes of the groups that GPUs stand in, from the inside out: [2, 4] makes
	// pairs, two to a socket. With one number there are close groups only; with none, GPUs whose
	// topology is not known.
	Topology []int `json:"topology"`
	// Unhealthy names the GPUs that no pod is given.
	Unhealthy []string `json:"unhealthy"`
	// Processes use the GPUs. A pod that plays a program needs no GPU for it, only its PID here.
	// Processes use the GPUs. An empty list has none. Default: null, how the GPUs are used is
	// unknown
	Processes []Process `json:"processes"`
	// ResourceName is the plain count. Default: nvidia.com/gpu
	ResourceName types.ResourceName `json:"resourceName"`
	// DeviceDir is the directory, on the node, in which each GPU has a device node. It is the
	// plugin's own: character devices there that are no GPU are removed. Default:
	// /var/lib/kubedevice/simgpu
	DeviceDir string `json:"deviceDir"`
	// DeviceNumber is what the device node of the first GPU opens; each further GPU has the next
	// minor number, so that a container runtime can tell them apart. Default: 60:0, of the majors
	// that Linux keeps for experiments: there is no driver behind, so opening one fails with ENXIO
	// where it is allowed, and with EPERM where it is not.
	DeviceNumber DeviceNumber `json:"deviceNumber"`
}

// Process is a simulated use of a GPU.
type Process struct {
	// GPU is the GPU's name, and PID a process on the host, which need not exist.
	GPU string `json:"gpu"`
	PID int    `json:"pid"`
	// Memory is how much of the GPU's memory the process uses. Default: that is not known
	Memory *resource.Quantity `json:"memory"`
	// Utilization is how busy it keeps the GPU, in percent. Default: that is not known
	Utilization *int64 `json:"utilization"`
}

// DeviceNumber is the number of a character device.
type DeviceNumber struct {
	Major uint32 `json:"major"`
	Minor uint32 `json:"minor"`
}

// defaults is the configuration that a file changes.
func defaults() Config {
	return Config{
		IDPrefix:     "sim-",
		Memory:       resource.MustParse("16Gi"),
		ResourceName: gpu.Resource,
		DeviceDir:    "/var/lib/kubedevice/simgpu",
		DeviceNumber: DeviceNumber{Major: 60, Minor: 0},
	}
}

// parseConfig parses a file's content strictly: a field that is unknown or makes no sense is an
// error that names it.
func parseConfig(content []byte) (Config, error) {
	config := defaults()
	if err := yaml.UnmarshalStrict(content, &config); err != nil {
		return Config{}, err
	}
	return config, config.validate()
}

// idPrefix is what keeps IDs fit for resource names and file names.
var idPrefix = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

func (c Config) validate() error {
	var problems []error
	complain := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if c.Count < 0 || c.Count > maxGPUs {
		complain("count is %d: use 0 to %d", c.Count, maxGPUs)
	}
	if !idPrefix.MatchString(c.IDPrefix) {
		complain("idPrefix is %q: use letters, digits, _ and -", c.IDPrefix)
	}
	if c.Memory.Sign() < 0 {
		complain("memory is %s: use a positive quantity such as 16Gi", c.Memory.String())
	}
	if len(c.Topology) > 2 {
		complain("topology has %d sizes: use at most two, of close and of wide groups", len(c.Topology))
	}
	for i, size := range c.Topology {
		if size < 1 || i > 0 && (c.Topology[i-1] < 1 || size%c.Topology[i-1] != 0) {
			complain("topology is %v: use positive sizes, each a multiple of the one before", c.Topology)
			break
		}
	}
	for _, p := range c.Processes {
		if p.PID <= 0 || p.Memory != nil && p.Memory.Sign() < 0 ||
			p.Utilization != nil && (*p.Utilization < 0 || *p.Utilization > 100) {
			complain("process %d of GPU %q: use a positive pid, a positive memory, and a utilization from 0 to 100",
				p.PID, p.GPU)
		}
	}
	if c.ResourceName == "" {
		complain("resourceName is empty: leave it out for %s", gpu.Resource)
	}
	if !filepath.IsAbs(c.DeviceDir) || filepath.Clean(c.DeviceDir) == "/" {
		complain("deviceDir is %q: use the absolute path of a directory for this plugin alone", c.DeviceDir)
	}
	return errors.Join(problems...)
}

// gpus returns the GPUs in the order of their numbers.
func (c Config) gpus() []gpu.GPU {
	gpus := make([]gpu.GPU, c.Count)
	for i := range gpus {
		id := fmt.Sprintf("%s%d", c.IDPrefix, i)
		gpus[i] = gpu.GPU{ID: id, Memory: c.Memory.Value(), Unhealthy: slices.Contains(c.Unhealthy, id)}
		for _, size := range c.Topology {
			gpus[i].Groups = append(gpus[i].Groups, i/size)
		}
	}
	return gpus
}
