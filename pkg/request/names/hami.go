// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// The extended resources by which HAMi counts parts of GPUs, for each GPU of a container.
const (
	hamiMemory     corev1.ResourceName = "nvidia.com/gpumem"            // MiB
	hamiPercentage corev1.ResourceName = "nvidia.com/gpumem-percentage" // of the memory of a GPU
	hamiCores      corev1.ResourceName = "nvidia.com/gpucores"          // percent of the compute time of a GPU
	hamiPriority   corev1.ResourceName = "nvidia.com/priority"
)

// allCores are the compute time of a GPU: a container that requests them has the GPU for itself.
const allCores = 100

// parts are these resources.
var parts = []corev1.ResourceName{hamiMemory, hamiPercentage, hamiCores, hamiPriority}

// Resources returns the names of the extended resources that are compiled, in an order of their
// own. No node has to list them.
func Resources() (list []string) {
	for _, name := range parts {
		list = append(list, string(name))
	}
	return list
}

// Parts are the resources that request devices: all of them but the priority.
func Parts() map[types.ResourceName]bool {
	return map[types.ResourceName]bool{
		types.ResourceName(hamiMemory): true, types.ResourceName(hamiPercentage): true,
		types.ResourceName(hamiCores): true,
	}
}

// countsParts reports whether a container of the pod names one of the resources.
func countsParts(pod *corev1.Pod) bool {
	for container := range containersOf(pod) {
		for _, name := range parts {
			if _, ok := written(container, name); ok {
				return true
			}
		}
	}
	return false
}

// hamiContainer compiles the resources of a container: the requests for parts of each of its GPUs.
// One that names a part and no GPU gets a part of one GPU.
func (c *compiler) hamiContainer(container *corev1.Container) {
	h := hamiReader{compiler: c, container: container, values: map[corev1.ResourceName]int64{}}
	if !h.read() {
		return
	}
	memory, percentage, cores := h.values[hamiMemory], h.values[hamiPercentage], h.values[hamiCores]
	n, counts := h.values[gpus]
	if !counts {
		n = 1
	}
	all := memory+percentage == 0 // without a limit, a container has all memory of its GPUs
	if all && (counts || cores == 0) {
		return // whole GPUs, which the count alone requests
	}
	s := share{memory: memory * mebibyte, millionths: percentage * (millionths / 100), cores: cores}
	if all || cores == allCores {
		s.cores, s.alone = 0, true
	}
	c.add(container.Name, n, s)
}

// hamiReader reads the resources of a container.
type hamiReader struct {
	*compiler
	container *corev1.Container
	values    map[corev1.ResourceName]int64
}

// read reads the quantities, and reports whether they can be served.
func (h *hamiReader) read() (ok bool) {
	before, named := len(h.compiled.Errors), false
	for _, name := range parts {
		if quantity, ok := written(h.container, name); ok {
			named = true
			h.values[name], ok = wholeNumber(quantity)
			if !ok {
				h.refuse(name, "write a whole number, 0 or more")
			}
		}
	}
	if !named {
		return false
	}
	if quantity, ok := written(h.container, gpus); ok {
		h.values[gpus], _ = wholeNumber(quantity)
	}
	if len(h.compiled.Errors) == before {
		h.check()
	}
	return len(h.compiled.Errors) == before
}

// check refuses quantities that contradict each other, that are too large, and those that are not
// supported.
func (h *hamiReader) check() {
	memory, percentage, cores := h.values[hamiMemory], h.values[hamiPercentage], h.values[hamiCores]
	if memory > maxMemory {
		h.refuse(hamiMemory, "it is in MiB, and no GPU has so much memory: write the number without a unit, such as "+
			"3000")
	}
	if percentage > 100 {
		h.refuse(hamiPercentage, "a GPU has 100 percent of its memory: write 1 to 100")
	}
	if memory > 0 && percentage > 0 {
		h.refuse(hamiPercentage, "the container requests %s, too, and both are for the memory of each of its GPUs: "+
			"remove one", hamiMemory)
	}
	if cores > allCores {
		h.refuse(hamiCores, "a GPU has 100 percent of its compute time: write 100, or remove it")
	}
	if _, ok := h.values[hamiPriority]; ok {
		h.refuse(hamiPriority, "containers that share a GPU have no priorities: remove it")
	}
	n, counts := h.values[gpus]
	switch {
	case counts && n == 0 && memory+percentage+cores > 0:
		h.refuse(gpus, "the container requests parts of GPUs, and no GPU: write 1 or more, or remove it")
	case n > maxGPUs:
		h.refuse(gpus, "a container gets parts of %d GPUs at most: request fewer", maxGPUs)
	}
}

// refuse adds the error of a resource.
func (h *hamiReader) refuse(name corev1.ResourceName, format string, args ...any) {
	quantity, _ := written(h.container, name)
	h.compiled.Errors = append(h.compiled.Errors, &Error{
		Container: h.container.Name, Key: string(name), Value: quantity.String(), Problem: fmt.Sprintf(format, args...),
	})
}

// hamiAnnotations refuses the annotations by which HAMi chooses devices and nodes, unless they
// demand what is true of each pod anyway.
func (c *compiler) hamiAnnotations(keys []string) {
	const byPath = "to choose GPUs by their groups, write a request in the annotation KubeDevice/DeviceInfo"
	for _, key := range keys {
		value := c.pod.Annotations[key]
		switch key {
		case useType, noUseType, useUUID, noUseUUID:
			if problem := checkChoice(value); problem != "" {
				c.refuse(key, "%s", problem)
			}
		case useIndexes, noUseIndex:
			c.refuse(key, "GPUs have no indexes: choose them by %s", useUUID)
		case numaBind:
			c.numaBind(key, value)
		case vgpuMode:
			c.refuse(key, "the ways to share a GPU of HAMi are not supported: remove it, or for a MIG instance write "+
				"limits of its profile, such as nvidia.com/mig-1g.10gb: 1")
		case gpuPolicy:
			switch {
			case value == "binpack" || value == "topology-aware" || value == "spread" && !c.shares():
			case value == "spread":
				c.refuse(key, "parts of GPUs are packed, so that other GPUs stay free: remove it, and for GPUs that "+
					"differ from each other count them")
			default:
				c.refuse(key, "it is none of HAMi's policies: write binpack, topology-aware, or remove it")
			}
		case nodePolicy:
			c.refuse(key, "a pod does not choose how nodes are compared: remove it, and set scoringStrategy of the "+
				"plugin NodeResourcesFit in the scheduler's configuration")
		case weights:
			c.refuse(key, "a pod does not choose how GPUs are compared: remove it; "+byPath)
		}
	}
}

// numaBind refuses to bind several GPUs to a NUMA node: one alone always is.
func (c *compiler) numaBind(key, value string) {
	switch value {
	case "false":
	case "true":
		for container := range containersOf(c.pod) {
			quantity, _ := written(container, gpus)
			if quantity.CmpInt64(1) > 0 {
				c.refuse(key, "container %q requests several GPUs, and GPUs are not chosen by NUMA node: remove it, "+
					"or request GPUs of one group, such as gpugrp0/A/gpu/a/cards and gpugrp0/A/gpu/b/cards",
					container.Name)
				return
			}
		}
	default:
		c.refuse(key, "write true or false")
	}
}

// shares reports whether a container requests a part of a GPU by HAMi's resources.
func (c *compiler) shares() bool { return len(c.compiled.Requests) > 0 }
