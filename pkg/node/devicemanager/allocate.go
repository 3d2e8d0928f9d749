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

// PreStart calls PreStartContainer of the resource's plugin before a container with those devices
// starts, if the plugin requires that. It waits like Allocate.
func (m *Manager) PreStart(ctx context.Context, resource types.ResourceName, ids []string) error {
	ids = slices.Sorted(slices.Values(ids))
	s, err := m.await(ctx, resource, ids)
	if err != nil || !s.preStart {
		return err
	}
	err = m.call(ctx, resource, "PreStartContainer", preStartTimeout, func(ctx context.Context) error {
		_, err := s.plugin.PreStartContainer(ctx, &pluginapi.PreStartContainerRequest{DevicesIds: ids})
		return err
	})
	if err != nil {
		return fmt.Errorf("the device plugin of %s does not prepare %s: %w", resource, strings.Join(ids, ", "), err)
	}
	return nil
}

// call makes a call into the resource's plugin with a time limit.
func (m *Manager) call(
	ctx context.Context, resource types.ResourceName, name string, limit time.Duration, fn func(context.Context) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	err := fn(ctx)
	if m.options.Metrics != nil {
		m.options.Metrics.ObservePlugin(string(resource), name, time.Since(start), err)
	}
	if err != nil {
		return Reason(err)
	}
	return nil
}

// await returns the session that serves the resource as soon as it lists the devices as healthy.
func (m *Manager) await(ctx context.Context, name types.ResourceName, ids []string) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, awaitTimeout)
	defer cancel()
	for {
		m.mu.Lock()
		s, err := m.lookup(name).servedWith(ids)
		changed := m.changed
		m.mu.Unlock()
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

// errAnswer: Allocate did not return this.
var errAnswer = errors.New("not the answer of a device plugin")

// Decode returns what a container needs according to an answer of Allocate. Of two devices or
// mounts for one path of the container, and of two equal CDI devices, the first one counts, as with
// the kubelet.
func Decode(answer []byte) (device.Allocation, error) {
	response := &pluginapi.ContainerAllocateResponse{}
	if err := proto.Unmarshal(answer, response); err != nil {
		return device.Allocation{}, fmt.Errorf("%w: %w", errAnswer, err)
	}
	allocation := device.Allocation{Envs: response.GetEnvs(), Annotations: response.GetAnnotations()}
	for _, d := range firstOfEach(response.GetDevices(), (*pluginapi.DeviceSpec).GetContainerPath) {
		allocation.Devices = append(allocation.Devices, device.HostDevice{
			HostPath: d.GetHostPath(), ContainerPath: d.GetContainerPath(), Permissions: d.GetPermissions(),
		})
	}
	for _, m := range firstOfEach(response.GetMounts(), (*pluginapi.Mount).GetContainerPath) {
		allocation.Mounts = append(allocation.Mounts, device.HostMount{
			HostPath: m.GetHostPath(), ContainerPath: m.GetContainerPath(), Readonly: m.GetReadOnly(),
		})
	}
	for _, d := range firstOfEach(response.GetCdiDevices(), (*pluginapi.CDIDevice).GetName) {
		allocation.CDIDevices = append(allocation.CDIDevices, d.GetName())
	}
	return allocation, nil
}

// firstOfEach returns the first element of each key.
func firstOfEach[T any](list []T, key func(T) string) []T {
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(element T) bool {
		duplicate := seen[key(element)]
		seen[key(element)] = true
		return duplicate
	})
}
