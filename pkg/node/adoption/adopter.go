// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"path/filepath"
	"slices"
	"sync"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Adopter has pods adopted that hold devices which the kubelet allocated, as far as the resources
// have moved here. All methods are safe for concurrent use.
type Adopter struct {
	nodeName   string
	checkpoint string // the kubelet's
	resources  Resources
	pods       Pods

	mu       sync.Mutex
	withheld map[types.ResourceName]string // see Withheld; never changed
}

var _ grants.Origin = (*Adopter)(nil)

// NewAdopter returns the adopter of a node, whose kubelet has its checkpoint in a directory,
// usually kubeletstate.Dir.
func NewAdopter(nodeName, kubeletDir string, resources Resources, pods Pods) *Adopter {
	return &Adopter{
		nodeName: nodeName, checkpoint: filepath.Join(kubeletDir, kubeletstate.CheckpointName),
		resources: resources, pods: pods,
	}
}

// Read implements grants.Origin.
func (a *Adopter) Read() (grants.Foreign, error) {
	list, kubelets, err := readAllocated(a.checkpoint, a.resources)
	if err != nil {
		return nil, err
	}
	return merger{adopter: a, kubelets: kubelets, candidates: candidates(list, a.nodeName, a.pods)}, nil
}

// AllocatedTo returns the devices that the kubelet allocated to a container, of resources that have
// moved here, sorted by name.
func (a *Adopter) AllocatedTo(podUID, container string) (devices []types.ResourceName, err error) {
	list, _, err := readAllocated(a.checkpoint, a.resources)
	for _, entry := range list {
		if entry.podUID == podUID && entry.container == container {
			devices = append(devices, entry.devices...)
		}
	}
	slices.Sort(devices)
	return devices, err
}

// Withheld returns the devices, by name, whose holders were not certain when the checkpoint of
// granted devices was last merged with the kubelet's, each with the reason. It must not be changed.
func (a *Adopter) Withheld() map[types.ResourceName]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.withheld
}

// merger merges what was read with the checkpoint of granted devices.
type merger struct {
	adopter    *Adopter
	kubelets   map[entry]bool // what containers have from plugins at the kubelet
	candidates []candidate
}

// Merge implements grants.Foreign.
func (m merger) Merge(
	ctx context.Context, pods map[string]grants.RuntimeState, allocations map[string]*grants.Allocation,
) {
	removeReturned(allocations, m.kubelets)
	withheld := adopt(ctx, m.candidates, m.adopter.pods, pods, allocations)
	m.adopter.mu.Lock()
	defer m.adopter.mu.Unlock()
	m.adopter.withheld = withheld
}
