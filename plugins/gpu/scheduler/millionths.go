// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"github.com/kubedevice/kubedevice/plugins/gpu"
)

// whole is the number of millionths that a GPU's memory has.
const whole = 1_000_000

// TranslatedResources says that millionths of a GPU's memory become bytes.
func (s *Scheduler) TranslatedResources() []devicescheduler.TranslatedResource {
	return []devicescheduler.TranslatedResource{{Level: gpu.Level, Resource: gpu.MemoryMillionths, To: gpu.Memory}}
}

// memoryOf returns how much memory each GPU of a node has that is allocatable; 0 for a node whose
// GPUs have none, and -1 for one whose GPUs differ.
func memoryOf(node *types.NodeInfo) (bytes int64) {
	for name, quantity := range node.Allocatable {
		_, kind, ok := gpu.Split(name)
		switch {
		case !ok || kind != gpu.Memory || quantity <= 0:
		case bytes == 0:
			bytes = quantity
		case bytes != quantity:
			return -1
		}
	}
	return bytes
}

// translateMillionths puts bytes in the place of millionths of the memory of a node's GPUs, rounded
// down. A part of a GPU has to be known before a GPU is chosen, so all GPUs of the node must have
// the same memory.
func translateMillionths(requests types.ResourceList, memory int64) error {
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		_, kind, ok := gpu.Split(name)
		if !ok || kind != gpu.MemoryMillionths {
			continue
		}
		quantity := requests[name]
		inBytes := types.ResourceName(device(name, kind) + "/" + gpu.Memory)
		_, both := requests[inBytes]
		switch {
		case quantity < 1 || quantity > whole:
			return fmt.Errorf("%s is %d: request 1 to %d", name, quantity, whole)
		case both:
			return fmt.Errorf("%s and %s are for the memory of one GPU: remove one", name, inBytes)
		case memory < 0:
			return fmt.Errorf("parts of a GPU's memory in millionths on a node whose GPUs have different memory: " +
				"request bytes")
		case memory == 0:
			return errors.New("parts of a GPU's memory in millionths on a node without a healthy GPU whose memory is " +
				"known")
		}
		delete(requests, name)
		product := new(big.Int).Mul(big.NewInt(memory), big.NewInt(quantity))
		requests[inBytes] = product.Div(product, big.NewInt(whole)).Int64()
	}
	return nil
}
