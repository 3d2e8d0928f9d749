// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"math/big"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
)

// The values of the sharing mode of compute time.
const (
	timeSlicing = "time-slicing"
	smSharing   = "sm-sharing"
)

// kai compiles KAI's annotations: parts of GPUs for one container of the pod, and for each
// container that is named in a key.
func (c *compiler) kai(keys []string) {
	for _, key := range keys {
		value := c.pod.Annotations[key]
		switch key {
		case fractionContainer, fractionDevices:
			if !slices.Contains(keys, fraction) && !slices.Contains(keys, kaiMemory) {
				c.refuse(key, "the pod has no annotation %s or %s, to which it belongs: add one, or remove it",
					fraction, kaiMemory)
			}
		case fractionLimit, kaiMemoryLimit:
			request := strings.TrimSuffix(key, ".limit")
			if c.pod.Annotations[request] != value {
				c.refuse(key, "it differs from the annotation %s, and memory beyond a request is not supported: write "+
					"the same value in both", request)
			}
		case smPercentage, smCores:
			c.refuse(key, "KAI's ways to share multiprocessors are not supported: remove it")
		case sharingMode:
			c.checkSharingMode(key)
		}
		if strings.HasPrefix(key, containerPrefix) {
			c.kaiContainer(key)
		}
	}
	_, byFraction := c.pod.Annotations[fraction]
	_, byMemory := c.pod.Annotations[kaiMemory]
	switch {
	case byFraction && byMemory:
		c.refuse(fraction, "the pod has the annotation %s, too, and both are for the memory of a GPU: remove one",
			kaiMemory)
	case byFraction:
		c.kaiPart(fraction, c.fraction())
	case byMemory:
		c.kaiPart(kaiMemory, c.memory())
	}
}

// fraction returns the part of a GPU that the annotation is for; an empty one if it is refused.
func (c *compiler) fraction() share {
	value := c.pod.Annotations[fraction]
	number, err := strconv.ParseFloat(value, 64)
	exact, ok := new(big.Rat).SetString(value)
	switch {
	case err != nil || !ok || number <= 0 || number >= 1:
		c.refuse(fraction, "write a number between 0 and 1, such as 0.5. For whole GPUs remove it, and write limits "+
			"of %s", gpus)
		return share{}
	case !exact.Mul(exact, big.NewRat(millionths, 1)).IsInt():
		c.refuse(fraction, "parts are allocated in millionths: write at most 6 decimals")
		return share{}
	}
	return share{millionths: exact.Num().Int64()}
}

// memory is fraction for the annotation in MiB.
func (c *compiler) memory() share {
	number, err := strconv.ParseInt(c.pod.Annotations[kaiMemory], 10, 64)
	if err != nil || number < 1 || number > maxMemory {
		c.refuse(kaiMemory, "write a number of MiB without a unit, such as 2000, that a GPU may have")
		return share{}
	}
	return share{memory: number * mebibyte}
}

// kaiPart adds the part of a GPU that an annotation is for to the container that gets it.
func (c *compiler) kaiPart(key string, part share) {
	n, ok := int64(1), part != share{}
	if value, written := c.pod.Annotations[fractionDevices]; written {
		number, err := strconv.ParseInt(value, 10, 64)
		if err != nil || number < 1 || number > maxGPUs {
			c.refuse(fractionDevices, "write a number of GPUs from 1 to %d", maxGPUs)
			ok = false
		}
		n = number
	}
	var container *corev1.Container
	if name, written := c.pod.Annotations[fractionContainer]; written {
		if container = c.container(name); container == nil {
			c.refuse(fractionContainer, "the pod has no such container: write the name of one, or remove it for the "+
				"first")
		}
	} else if len(c.pod.Spec.Containers) > 0 {
		container = &c.pod.Spec.Containers[0]
	}
	if ok && container != nil {
		c.addPart(key, container, n, part)
	}
}

// addPart adds a part of each of so many GPUs to a container, which must request no GPUs otherwise.
func (c *compiler) addPart(key string, container *corev1.Container, n int64, part share) {
	if _, counts := written(container, gpus); counts {
		c.refuse(key, "container %q has limits of %s, too: a container gets whole GPUs or parts of some: remove one",
			container.Name, gpus)
		return
	}
	if _, twice := c.compiled.Requests[container.Name]; twice {
		c.refuse(key, "container %q requests a part of a GPU by another name, too: remove one", container.Name)
		return
	}
	c.add(container.Name, n, part)
}

// container returns the container of that name, or nil.
func (c *compiler) container(name string) *corev1.Container {
	for container := range containersOf(c.pod) {
		if container.Name == name {
			return container
		}
	}
	return nil
}

// kaiContainer compiles an annotation for one container.
func (c *compiler) kaiContainer(key string) {
	var name, suffix string
	for _, known := range []string{memoryRequest, memoryLimit, computeMode, binderDevices} {
		if before, found := strings.CutSuffix(strings.TrimPrefix(key, containerPrefix), known); found {
			name, suffix = before, known
		}
	}
	container := c.container(name)
	switch {
	case suffix == "":
		c.refuse(key, "it is no annotation for a container that is supported: write %s<container>%s, or remove it",
			containerPrefix, memoryRequest)
	case suffix == binderDevices:
		c.refuse(key, "KAI's binder alone writes it, and the devices of a pod are the scheduler's choice: remove it")
	case container == nil:
		c.refuse(key, "the pod has no container %q: write the name of one", name)
	case suffix == computeMode:
		c.checkSharingMode(key)
	default:
		c.containerMemory(key, container)
	}
}

// containerMemory compiles the memory of a container, of which request and limit must be the same.
// If one of them is absent, it is what the other one is.
func (c *compiler) containerMemory(key string, container *corev1.Container) {
	limit := containerPrefix + container.Name + memoryLimit
	value := c.pod.Annotations[key]
	quantity, err := apiresource.ParseQuantity(value)
	bytes, ok := wholeNumber(quantity)
	if err != nil || !ok || bytes < mebibyte || bytes > maxMemory*mebibyte {
		c.refuse(key, "write a quantity of 1Mi or more that a GPU may have, such as 8Gi")
		return
	}
	other, both := c.pod.Annotations[limit]
	switch {
	case key == limit:
		if _, both = c.pod.Annotations[containerPrefix+container.Name+memoryRequest]; both {
			return // the request is compiled
		}
	case both:
		if most, err := apiresource.ParseQuantity(other); err != nil || most.Cmp(quantity) != 0 {
			c.refuse(limit, "it differs from the request, which is %s, and memory beyond a request is not supported: "+
				"write the same in both", value)
			return
		}
	}
	c.addPart(key, container, 1, share{memory: bytes})
}

// checkSharingMode refuses a way to share compute time other than time slices.
func (c *compiler) checkSharingMode(key string) {
	switch c.pod.Annotations[key] {
	case timeSlicing:
	case smSharing:
		c.refuse(key, "containers share a GPU by time slices: write %s, or remove it", timeSlicing)
	default:
		c.refuse(key, "write %s, or remove it", timeSlicing)
	}
}
