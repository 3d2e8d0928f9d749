// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"maps"
	"path"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// permissions of an added device: mknod, read, write.
const permissions = "mrw"

// Merge returns what the additions change in config, in the order of the additions; config itself stays as it is. An error
// names the plugin and what it wanted, and means that the container must not be created.
func Merge(host Host, config *runtimeapi.ContainerConfig, additions []Addition) (*runtimeapi.ContainerConfig, error) {
	m := newMerger(host, config)
	for _, addition := range additions {
		if err := m.add(addition); err != nil {
			return nil, fmt.Errorf("device plugin %q: %w", addition.Plugin, err)
		}
	}
	return m.delta, nil
}

// entry is what stands at some key already.
type entry[T any] struct {
	value T
	from  string // who put it there, in words
}

// merger collects a delta and knows what stands where.
type merger struct {
	host    Host
	delta   *runtimeapi.ContainerConfig
	devices map[string]entry[deviceAt]
	mounts  map[string]entry[device.Mount]
	envs    map[string]entry[string]
}

// deviceAt is what makes two devices at the same container path the same.
type deviceAt struct{ hostPath, permissions string }

const thePod = "the pod"

func newMerger(host Host, config *runtimeapi.ContainerConfig) *merger {
	m := &merger{
		host:    host,
		delta:   &runtimeapi.ContainerConfig{},
		devices: map[string]entry[deviceAt]{},
		mounts:  map[string]entry[device.Mount]{},
		envs:    map[string]entry[string]{},
	}
	for _, d := range config.GetDevices() {
		m.devices[path.Clean(d.GetContainerPath())] = entry[deviceAt]{deviceAt{d.GetHostPath(), d.GetPermissions()}, thePod}
	}
	for _, mount := range config.GetMounts() {
		at := path.Clean(mount.GetContainerPath())
		m.mounts[at] = entry[device.Mount]{device.Mount{ContainerPath: at, HostPath: mount.GetHostPath(), Readonly: mount.GetReadonly()}, thePod}
	}
	return m
}

func (m *merger) add(addition Addition) error {
	for _, p := range addition.Devices {
		if err := m.addDevice(p, addition.Plugin); err != nil {
			return err
		}
	}
	for _, mount := range addition.Mounts {
		if err := m.addMount(mount, addition.Plugin); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(addition.Envs)) {
		if err := m.addEnv(name, addition.Envs[name], addition.Plugin); err != nil {
			return err
		}
	}
	return nil
}

func (m *merger) addDevice(p, plugin string) error {
	if err := checkDevice(m.host, p); err != nil {
		return err
	}
	fresh, err := place(m.devices, p, deviceAt{p, permissions}, plugin)
	if err != nil {
		return fmt.Errorf("device %s: %w", p, err)
	}
	if fresh {
		m.delta.Devices = append(m.delta.Devices, &runtimeapi.Device{ContainerPath: p, HostPath: p, Permissions: permissions})
	}
	return nil
}

func (m *merger) addMount(mount device.Mount, plugin string) error {
	if err := checkMount(m.host, mount); err != nil {
		return err
	}
	fresh, err := place(m.mounts, mount.ContainerPath, mount, plugin)
	if err != nil {
		return fmt.Errorf("mount at %s: %w", mount.ContainerPath, err)
	}
	if fresh {
		m.delta.Mounts = append(m.delta.Mounts, &runtimeapi.Mount{
			ContainerPath: mount.ContainerPath, HostPath: mount.HostPath, Readonly: mount.Readonly,
		})
	}
	return nil
}

func (m *merger) addEnv(name, value, plugin string) error {
	if err := checkEnv(name, value); err != nil {
		return err
	}
	fresh, err := place(m.envs, name, value, plugin)
	if err != nil {
		return fmt.Errorf("environment variable %s: %w", name, err)
	}
	if fresh {
		m.delta.Envs = append(m.delta.Envs, &runtimeapi.KeyValue{Key: name, Value: []byte(value)})
	}
	return nil
}

// place puts value at key for the plugin. It returns false if the same is there already, and an error if another is.
func place[T comparable](entries map[string]entry[T], key string, value T, plugin string) (fresh bool, err error) {
	there, taken := entries[key]
	switch {
	case !taken:
		entries[key] = entry[T]{value, fmt.Sprintf("device plugin %q", plugin)}
		return true, nil
	case there.value == value:
		return false, nil
	default:
		return false, fmt.Errorf("%s has %v there, this plugin wants %v", there.from, there.value, value)
	}
}
