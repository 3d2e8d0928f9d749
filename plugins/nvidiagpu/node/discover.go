// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvml"
)

// found is a GPU that answers.
type found struct {
	uuid   string
	memory int64
	minor  int // of its device node, or unknownMinor
	device nvml.Device

	partitioned bool
	instances   []nvml.Instance // of a partitioned GPU
	unlisted    error           // why the instances are not known
}

// discover returns the GPUs that answer, in NVML's order, and what is wrong with the others. One
// lost GPU does not hide the rest.
func discover(library *nvml.Library) (gpus []found, problems []error, err error) {
	count, err := library.Count()
	if err != nil {
		return nil, nil, err
	}
	for i := range count {
		g, err := queryGPU(library, i)
		if err != nil {
			problems = append(problems, fmt.Errorf("GPU number %d: %w", i, err))
			continue
		}
		if g.unlisted != nil {
			problems = append(problems, fmt.Errorf("GPU %s: %w", g.uuid, g.unlisted))
		}
		gpus = append(gpus, g)
	}
	return gpus, problems, nil
}

func queryGPU(library *nvml.Library, index int) (g found, err error) {
	if g.device, err = library.Device(index); err != nil {
		return found{}, err
	}
	if g.uuid, err = g.device.UUID(); err != nil {
		return found{}, err
	}
	if g.memory, err = g.device.Memory(); err != nil && !nvml.IsMissing(err) { // as where it is the machine's
		return found{}, err
	}
	if g.minor, err = g.device.Minor(); err != nil {
		g.minor = unknownMinor // it matters where device nodes are passed, and is an error there
	}
	if g.partitioned, err = g.device.Partitioned(); err != nil || !g.partitioned {
		return g, err
	}
	// Somebody may just create or destroy one. Then what is listed fails to answer.
	for range 3 {
		if g.instances, g.unlisted = g.device.Instances(); g.unlisted == nil {
			break
		}
	}
	return g, nil
}

// joined says how two GPUs are joined.
type joined int

const (
	apart   joined = iota
	widely         // by any path inside the machine
	closely        // by NVLink, on one board, or under PCIe switches
)

// connection is how two GPUs are joined, and whether NVLink joins them.
type connection struct {
	joined joined
	nvlink bool
}

// join queries how two GPUs are joined. What the driver cannot say counts as apart.
func join(a, b nvml.Device) (connection, error) {
	linked, err := nvml.NVLinked(a, b)
	if err != nil {
		return connection{}, err
	}
	if linked {
		return connection{closely, true}, nil
	}
	how, err := joinPCIe(a, b)
	return connection{joined: how}, err
}

// joinPCIe queries how two GPUs are joined without NVLink.
func joinPCIe(a, b nvml.Device) (joined, error) {
	ancestor, err := nvml.CommonAncestor(a, b)
	var nvmlErr *nvml.Error
	switch {
	case errors.As(err, &nvmlErr) && (nvmlErr.Code == nvml.NotSupported || nvmlErr.Code == nvml.FunctionNotFound):
		return apart, nil
	case err != nil:
		return apart, err
	case ancestor <= nvml.SeveralSwitches:
		return closely, nil
	}
	return widely, nil
}
