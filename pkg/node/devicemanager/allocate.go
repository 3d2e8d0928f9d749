// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Allocate asks the plugin of the resource what a container needs for exactly the devices with those IDs. It waits for a
// plugin that is starting again, for awaitLimit at most. The answer is opaque; see Decode. It is asked once for a container:
// who starts that again uses the answer again, as the kubelet does, unless the machine was booted since.
func (m *Manager) Allocate(ctx context.Context, resource types.ResourceName, ids []string) (answer []byte, err error) {
	ids = slices.Sorted(slices.Values(ids))
	s, err := m.await(ctx, resource, ids)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, allocateLimit)
	defer cancel()
	start := time.Now()
	response, err := s.plugin.Allocate(ctx, &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}}})
	m.options.Observe(string(resource), "Allocate", time.Since(start), err)
	if err != nil {
		return nil, fmt.Errorf("the device plugin of %s does not allocate %s: %w", resource, strings.Join(ids, ", "), reason(err))
	}
	if got := len(response.GetContainerResponses()); got != 1 {
		return nil, fmt.Errorf("the device plugin of %s gave %d answers for the one container that needs %s", resource, got, strings.Join(ids, ", "))
	}
	answer, err = proto.MarshalOptions{Deterministic: true}.Marshal(response.GetContainerResponses()[0])
	if err != nil {
		return nil, fmt.Errorf("answer of the device plugin of %s: %w", resource, err)
	}
	return answer, nil
}

// PreStart tells the plugin of the resource that a container with those devices is about to start, if the plugin wants to be
// told. It waits like Allocate.
func (m *Manager) PreStart(ctx context.Context, resource types.ResourceName, ids []string) error {
	ids = slices.Sorted(slices.Values(ids))
	s, err := m.await(ctx, resource, ids)
	if err != nil || !s.preStart {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, preStartLimit)
	defer cancel()
	start := time.Now()
	_, err = s.plugin.PreStartContainer(ctx, &pluginapi.PreStartContainerRequest{DevicesIds: ids})
	m.options.Observe(string(resource), "PreStartContainer", time.Since(start), err)
	if err != nil {
		return fmt.Errorf("the device plugin of %s does not prepare %s: %w", resource, strings.Join(ids, ", "), reason(err))
	}
	return nil
}

// await returns the session that serves the resource once it lists the devices as healthy.
func (m *Manager) await(ctx context.Context, name types.ResourceName, ids []string) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, awaitLimit)
	defer cancel()
	for {
		s, changed, err := m.servedWith(name, ids)
		if err == nil {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w; waited for it, and the container is tried again", err)
		}
	}
}

// servedWith returns the session that serves the resource and lists the devices, or why there is none, and when to ask again.
func (m *Manager) servedWith(name types.ResourceName, ids []string) (*session, <-chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.resource(name)
	s, err := r.served()
	if err != nil {
		return nil, m.changed, err
	}
	for _, id := range ids {
		d, listed := r.find(id)
		switch {
		case !listed:
			return nil, m.changed, fmt.Errorf("device %s of %s is not among those that its plugin lists", id, name)
		case !d.healthy:
			return nil, m.changed, fmt.Errorf("device %s of %s is unhealthy, its plugin says", id, name)
		}
	}
	return s, nil, nil
}

// errAnswer is what is wrong with an answer that Allocate did not return.
var errAnswer = errors.New("not the answer of a device plugin")

// Decode returns what a container needs by the answer of Allocate.
//
// An answer may name a device, mount or CDI device twice, or two host paths for one path in the container: the first counts,
// as with the kubelet.
func Decode(answer []byte) (device.Allocation, error) {
	response := &pluginapi.ContainerAllocateResponse{}
	if err := proto.Unmarshal(answer, response); err != nil {
		return device.Allocation{}, fmt.Errorf("%w: %w", errAnswer, err)
	}
	allocation := device.Allocation{Envs: response.GetEnvs(), Annotations: response.GetAnnotations()}
	devices, mounts, names := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, d := range response.GetDevices() {
		if first(devices, d.GetContainerPath()) {
			allocation.Devices = append(allocation.Devices, device.HostDevice{
				HostPath: d.GetHostPath(), ContainerPath: d.GetContainerPath(), Permissions: d.GetPermissions(),
			})
		}
	}
	for _, m := range response.GetMounts() {
		if first(mounts, m.GetContainerPath()) {
			allocation.Mounts = append(allocation.Mounts, device.HostMount{
				HostPath: m.GetHostPath(), ContainerPath: m.GetContainerPath(), Readonly: m.GetReadOnly(),
			})
		}
	}
	for _, d := range response.GetCdiDevices() {
		if first(names, d.GetName()) {
			allocation.CDIDevices = append(allocation.CDIDevices, d.GetName())
		}
	}
	return allocation, nil
}

// first reports whether key is new, and notes it.
func first(seen map[string]bool, key string) bool {
	if seen[key] {
		return false
	}
	seen[key] = true
	return true
}
