// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Merge returns what the additions change in config, in the order of the additions; config itself
// stays as it is. leftOut says of each part of an addition that the container does not get which
// plugin's it is, and why. An error names the plugin and what it wanted, and means that the
// container must not be created.
func Merge(
	host HostFS, config *runtimeapi.ContainerConfig, additions []Addition,
) (delta *runtimeapi.ContainerConfig, leftOut []string, err error) {
	m := newMerger(host, config)
	for _, addition := range additions {
		if err := m.add(&addition); err != nil {
			return nil, nil, fmt.Errorf("device plugin %q: %w", addition.Plugin, err)
		}
	}
	return m.delta, m.leftOut, nil
}

// merger collects a delta and knows what is at each place.
type merger struct {
	host  HostFS
	delta *runtimeapi.ContainerConfig
	// leftOut is what Merge returns.
	leftOut []string

	paths       entries[any]    // deviceAt or mountAt, by path in the container
	permissions entries[string] // of devices, by path on the host
	envs        entries[string]
	annotations entries[string]
	cdiDevices  map[string]bool // that are named
}

// deviceAt and mountAt are what must be the same for two of them at one path of the container to be
// the same.
type (
	deviceAt string // its path on the host
	mountAt  struct {
		hostPath          string
		readonly, relabel bool
		propagation       runtimeapi.MountPropagation
	}
)

func (d deviceAt) String() string { return "device " + string(d) }

func (m mountAt) String() string {
	mode := "read-write"
	if m.readonly {
		mode = "read-only"
	}
	return fmt.Sprintf(
		"mount of %s (%s, propagation %v, SELinux relabelling %t)",
		m.hostPath,
		mode,
		m.propagation,
		m.relabel,
	)
}

func newMerger(host HostFS, config *runtimeapi.ContainerConfig) *merger {
	m := &merger{
		host: host, delta: &runtimeapi.ContainerConfig{},
		paths: entries[any]{}, permissions: entries[string]{}, envs: entries[string]{}, annotations: entries[string]{},
		cdiDevices: map[string]bool{},
	}
	for _, d := range config.GetDevices() {
		hostPath := m.deviceOf(d.GetHostPath())
		m.paths[path.Clean(d.GetContainerPath())] = fromPod[any](deviceAt(hostPath))
		permissions := ordered(m.permissions[hostPath].value + d.GetPermissions())
		m.permissions[hostPath] = fromPod(permissions)
	}
	for _, mount := range config.GetMounts() {
		m.paths[path.Clean(mount.GetContainerPath())] = fromPod[any](mountAt{
			mount.GetHostPath(), mount.GetReadonly(), mount.GetSelinuxRelabel(), mount.GetPropagation(),
		})
	}
	for key, value := range config.GetAnnotations() {
		m.annotations[key] = fromPod(value)
	}
	for _, d := range config.GetCDIDevices() {
		m.cdiDevices[d.GetName()] = true
	}
	return m
}

// deviceOf returns the path to which links lead from a path of the request, as additions have it.
func (m *merger) deviceOf(hostPath string) string {
	hostPath = path.Clean(hostPath)
	every := func(string) bool { return true }
	if resolved, _, err := resolve(m.host, hostPath, every); err == nil {
		return resolved
	}
	return hostPath // a text of the NRI frontend, or a device that is gone
}

func (m *merger) add(a *Addition) error {
	for _, d := range a.Devices {
		if err := m.addDevice(a, d); err != nil {
			return fmt.Errorf("device %s: %w", d.HostPath, err)
		}
	}
	for _, mount := range a.Mounts {
		if err := m.addMount(a, mount); err != nil {
			return fmt.Errorf("mount of %s at %s: %w", mount.HostPath, mount.ContainerPath, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.Envs)) {
		if err := m.addEnv(a, name); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(a.Annotations)) {
		if err := m.addAnnotation(a, key); err != nil {
			return err
		}
	}
	for _, name := range a.CDIDevices {
		if err := m.addCDI(name); err != nil {
			return err
		}
	}
	return nil
}

// leaveOut leaves a part of an addition out.
func (m *merger) leaveOut(a *Addition, what string, why error) {
	m.leftOut = append(m.leftOut, fmt.Sprintf("device plugin %q: %s is left out: %v", a.Plugin, what, why))
}

// entry is what is at a key already.
type entry[T any] struct {
	value   T
	from    string // its origin, in words
	kubelet bool   // a plugin of the kubelet's API has added it
}

// fromPod is what the request has already. Plugins that are registered with the kubelet may have
// added it, so that it counts like what plugins of the kubelet's API add.
func fromPod[T any](value T) entry[T] {
	return entry[T]{value: value, from: "the pod", kubelet: true}
}

// takenError is why a plugin's value is not at its key: another one is. It is no error between
// plugins of the kubelet's API.
type takenError struct{ text string }

func (t *takenError) Error() string { return t.text }

// entries are what is at the keys of one kind.
type entries[T comparable] map[string]entry[T]

// place puts value at key for the plugin. It returns false if the same is there already. If another
// value is there it returns an error, which is a *taken if the value counts that is there.
func (e entries[T]) place(key string, value T, a *Addition) (fresh bool, err error) {
	there, known := e[key]
	switch {
	case !known:
		e[key] = entry[T]{value: value, from: fmt.Sprintf("device plugin %q", a.Plugin), kubelet: a.KubeletPaths}
		return true, nil
	case there.value == value:
		return false, nil
	}
	text := fmt.Sprintf("%s has %v there, this plugin wants %v", there.from, there.value, value)
	if there.kubelet && a.KubeletPaths {
		return false, &takenError{text}
	}
	return false, errors.New(text)
}
