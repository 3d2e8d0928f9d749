// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kubedevice/kubedevice/pkg/hosted"
	"github.com/kubedevice/kubedevice/pkg/node/devicehost"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// awaitLimit is how long a container waits for the hosted plugins of its devices to come, as after a reboot. With all that
// the plugins may take after that it stays below the two minutes after which the kubelet gives up on the runtime.
const awaitLimit = 50 * time.Second

// Hosted serves plugins of the kubelet's device-plugin API. *devicehost.Host does.
type Hosted interface {
	// States returns what is known of each resource, by name, and a channel that is closed when that is no longer so.
	States() (now []devicehost.State, changed <-chan struct{})
	// Allocate returns what the resource's plugin says that a container needs for the devices with those IDs.
	Allocate(ctx context.Context, resource types.ResourceName, ids []string) (answer []byte, err error)
	// PreStart tells the resource's plugin that a container with those devices is about to start.
	PreStart(ctx context.Context, resource types.ResourceName, ids []string) error
}

// Answers keeps what hosted plugins said once of a container. *grants.Record does.
type Answers interface {
	// Kept returns the answer that was kept under the key, if there is one that can still be used.
	Kept(podUID, container, key string) (answer []byte, kept bool)
	// Keep keeps the answer, unless there is such a one, and returns the one that is kept.
	Keep(ctx context.Context, podUID, container, key string, answer []byte) (kept []byte, err error)
}

// Add gives the host the resources of hosted plugins, too, behind those of plugin files. It must be called before Run.
func (h *Host) Add(hosted Hosted, answers Answers) {
	h.hosted, h.answers, h.inventory.hosts = hosted, answers, true
}

// takeHosted takes over what hosted plugins have, and returns a channel that is closed when that is no longer so.
func (h *Host) takeHosted() (changed <-chan struct{}) {
	if h.hosted == nil {
		return nil
	}
	states, changed := h.hosted.States()
	resources := make([]source, 0, len(states))
	for _, state := range states {
		resources = append(resources, &resource{state, h.hosted, h.answers})
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.resources = resources
	return changed
}

// followHosted makes the inventory anew when what hosted plugins have changes, until ctx is done.
func (h *Host) followHosted(ctx context.Context, changed <-chan struct{}) {
	for {
		select {
		case <-changed:
			changed = h.takeHosted()
			h.refresh(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// resource is an extended resource of a hosted plugin, as it was at one moment. Each is a source of its own, so that who asks
// for two resources must be given something of each.
type resource struct {
	now     devicehost.State
	hosted  Hosted
	answers Answers
}

var _ source = (*resource)(nil)

func (r *resource) label() string { return string(r.now.Resource) }

func (r *resource) state() (info *types.NodeInfo, asked bool, err error) {
	return r.now.Info, r.now.Told, r.now.Err
}

func (r *resource) denyEnvs() map[string]string { return nil }

// allocate asks the plugin once for each container, and then again when its answer is kept no more: until then, that is used
// when the container is created again.
// The limits are the host's own.
func (r *resource) allocate(ctx context.Context, claim Claim, _ time.Duration) (inject.Addition, error) {
	ids := idsOf(r.now.Resource, claim.Container.AllocateFrom)
	key := string(r.now.Resource)
	answer, kept := r.answers.Kept(claim.PodUID, claim.ContainerName, key)
	if !kept {
		fresh, err := r.hosted.Allocate(ctx, r.now.Resource, ids)
		if err != nil {
			return inject.Addition{}, err
		}
		if answer, err = r.answers.Keep(ctx, claim.PodUID, claim.ContainerName, key, fresh); err != nil {
			return inject.Addition{}, err
		}
	}
	if err := r.hosted.PreStart(ctx, r.now.Resource, ids); err != nil {
		return inject.Addition{}, err
	}
	allocation, err := devicehost.Decode(answer)
	if err != nil {
		return inject.Addition{}, fmt.Errorf("the device plugin of %s: %w", r.now.Resource, err)
	}
	// The API has no way to declare a link, and plugins do name some, such as those below /dev/dri/by-path; or folders.
	return inject.Addition{Plugin: r.label(), Allocation: allocation, KubeletPaths: true}, nil
}

// idsOf returns the IDs of the resource's devices among those in from, sorted.
func idsOf(extended types.ResourceName, from types.ResourceLocation) []string {
	ids := map[string]bool{}
	for _, name := range from {
		if d, ok := hosted.Parse(name); ok && d.Resource == extended {
			ids[d.ID] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// Await waits until the hosted plugins of the devices are there, for awaitLimit at most. Who calls it learns from the inventory
// what came of it.
func (h *Host) Await(ctx context.Context, from types.ResourceLocation) {
	ctx, cancel := context.WithTimeout(ctx, awaitLimit)
	defer cancel()
	for {
		inventory, changed := h.Inventory()
		if !slices.ContainsFunc(slices.Collect(maps.Values(from)), func(name types.ResourceName) bool { return inventory.Missing(name) != nil }) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// Missing returns an error for a device of a hosted plugin that is not there and may come, and nil for all others.
func (i *Inventory) Missing(name types.ResourceName) error {
	d, ok := hosted.Parse(name)
	if !ok || !i.hosts {
		return nil
	}
	if owner, owned := i.owners[name]; owned {
		if _, is := owner.(*resource); !is {
			return nil
		}
	}
	for _, s := range i.sources {
		if r, is := s.(*resource); is && r.now.Resource == d.Resource {
			if r.now.Serving {
				return nil
			}
			return r.now.Err
		}
	}
	return fmt.Errorf("no device plugin of %s has registered with kubecri", d.Resource)
}

// Ailing returns what is wrong, in words, with a device that was given out, or nothing: if it is well, and also if its plugin
// is not, which says nothing about the device.
func (i *Inventory) Ailing(name types.ResourceName) string {
	quantity, known := i.Allocatable(name)
	switch {
	case known && quantity > 0 || i.Missing(name) != nil:
		return ""
	case known:
		return "is unhealthy"
	}
	if _, is := hosted.Parse(name); is || i.Complete {
		return "is gone"
	}
	return ""
}
