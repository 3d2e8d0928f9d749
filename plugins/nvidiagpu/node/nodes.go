// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"strings"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvml"
)

// defaultMinorsFile is where the driver lists the device nodes in /dev/nvidia-caps: NVIDIA's MIG
// User Guide, device nodes and capabilities.
const defaultMinorsFile = "/proc/driver/nvidia-caps/mig-minors"

// unknownMinor is the minor number of a device node that the driver does not say.
const unknownMinor = -1

// gpuNode returns the device node of a GPU.
func gpuNode(k known) string { return fmt.Sprintf("/dev/nvidia%d", k.minor) }

// instanceNodes returns the device nodes that give access to a compute instance of the GPU with
// that minor number: that of its GPU instance, and its own. A process that can open neither cannot
// use the instance, even if it can open the rest of the GPU.
func instanceNodes(file string, minor int, instance nvml.Instance) ([]string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	numbers := parseMinors(string(content))
	gi := fmt.Sprintf("gpu%d/gi%d/access", minor, instance.GPUInstance)
	ci := fmt.Sprintf("gpu%d/gi%d/ci%d/access", minor, instance.GPUInstance, instance.ComputeInstance)
	var nodes []string
	for _, capability := range []string{gi, ci} {
		number, ok := numbers[capability]
		if !ok {
			return nil, fmt.Errorf("%s has no device node for %s", file, capability)
		}
		nodes = append(nodes, fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", number))
	}
	return nodes, nil
}

// parseMinors reads lines of a capability and the minor number of its device node. It leaves out
// what is neither.
func parseMinors(content string) map[string]int {
	numbers := map[string]int{}
	for line := range strings.Lines(content) {
		var capability string
		var number int
		if _, err := fmt.Sscanf(line, "%s %d", &capability, &number); err == nil && number >= 0 {
			numbers[capability] = number
		}
	}
	return numbers
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
