// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Plugins are device plugins of the kubelet's API by resource. *Manager is one.
type Plugins interface {
	// States returns the state of each resource, by name, and a channel that is closed when one
	// changes.
	States() (now []State, changed <-chan struct{})
	// Allocate calls the resource's plugin for a container with those devices. Decode decodes the
	// answer. The call goes on when ctx is done, and its outcome is that of the next Allocate with
	// the same arguments.
	Allocate(
		ctx context.Context, resource types.ResourceName, ids []string, container string,
	) (answer []byte, err error)
	// PreStart notifies the resource's plugin that a container with those devices is about to
	// start.
	PreStart(ctx context.Context, resource types.ResourceName, ids []string) error
}

// Responses caches what plugins answered to Allocate. *grants.ResponseCache does.
type Responses interface {
	// Get returns the response that is cached for the container under the key, if it is still
	// valid.
	Get(podUID, container, key string) (response []byte, cached bool)
	// Put caches the response, unless there is a valid one, and returns the cached one.
	Put(podUID, container, key string, response []byte) (cached []byte, err error)
}

// transport makes each resource a source of its own, so that a container that requests two
// resources needs a device of each.
type transport struct {
	plugins   Plugins
	responses Responses
}

// NewTransport returns the transport of the plugins that are served.
func NewTransport(served Plugins, responses Responses) plugins.Transport {
	return transport{served, responses}
}

// Sources implements plugins.Transport.
func (t transport) Sources() (now []plugins.Source, loaded bool, changed <-chan struct{}) {
	states, changed := t.plugins.States()
	for _, state := range states {
		now = append(now, source{transport: t, state: state})
	}
	return now, true, changed
}

// Late implements plugins.Transport: a device's name has its resource, and plugins register when
// they are ready.
func (t transport) Late(name types.ResourceName) (label string, late bool) {
	d, late := kubeletdevice.Parse(name)
	return string(d.Resource), late
}

// source is a resource at one moment.
type source struct {
	transport
	state State
}

// Label implements plugins.Source.
func (s source) Label() string { return string(s.state.Resource) }

// State implements plugins.Source.
func (s source) State() plugins.State { return s.state.State }

// Firewall implements plugins.Source: the API has no word for it. The firewall knows the vendor by
// the resource's name.
func (s source) Firewall(bool) device.Firewall { return device.Firewall{} }

// Allocate implements plugins.Source. The plugin allocates once for each container and its devices;
// when the container is created again, the cached response is used for as long as it is valid.
func (s source) Allocate(ctx context.Context, claim plugins.Claim) (inject.Addition, error) {
	resource := s.state.Resource
	ids := idsOf(resource, claim.Container.AllocateFrom)
	key := responseKey(resource, ids)
	response, cached := s.responses.Get(claim.PodUID, claim.ContainerName, key)
	if !cached { // by the key that v0.1.0 had, which knew no replacements
		response, cached = s.responses.Get(claim.PodUID, claim.ContainerName, string(resource))
	}
	fresh := !cached
	if fresh {
		answer, err := s.plugins.Allocate(ctx, resource, ids, claim.PodUID+"/"+claim.ContainerName)
		if err != nil {
			return inject.Addition{}, err
		}
		if response, err = s.responses.Put(claim.PodUID, claim.ContainerName, key, answer); err != nil {
			return inject.Addition{}, err
		}
	}
	if err := s.plugins.PreStart(ctx, resource, ids); err != nil {
		return inject.Addition{}, err
	}
	allocation, err := Decode(response)
	if err != nil {
		return inject.Addition{}, fmt.Errorf("the device plugin of %s: %w", resource, err)
	}
	// The API cannot declare links, and plugins name some, such as those below /dev/dri/by-path; or
	// directories.
	return inject.Addition{Plugin: s.Label(), Allocation: allocation, KubeletPaths: true, Fresh: fresh}, nil
}

// responseKey is what a response is cached under: one for other devices, as of a container whose
// devices were replaced meanwhile, is never taken for it.
func responseKey(resource types.ResourceName, ids []string) string {
	return fmt.Sprintf("%s %x", resource, sha256.Sum256([]byte(strings.Join(ids, "\x00"))))
}

// idsOf returns the IDs of the resource's devices among those in from, sorted.
func idsOf(extended types.ResourceName, from types.ResourceLocation) []string {
	ids := map[string]bool{}
	for _, name := range from {
		if d, ok := kubeletdevice.Parse(name); ok && d.Resource == extended {
			ids[d.ID] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}
