// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// cdiAnnotation begins the keys of annotations that name CDI devices, separated by commas. Newer
// runtimes do not read them, so they are sent as CDI devices.
const cdiAnnotation = "cdi.k8s.io/"

// mayFollow reports whether the path to a host file may go through the link.
func (a *Addition) mayFollow(link string) bool {
	return a.KubeletPaths || slices.Contains(a.Links, link)
}

// hostPath returns a path of the host as the addition means it.
func (a *Addition) hostPath(p string) string {
	if a.KubeletPaths && path.IsAbs(p) {
		return path.Clean(p)
	}
	return p
}

// containerPath returns a path of the container as the addition means it.
func (a *Addition) containerPath(p string) string {
	if a.KubeletPaths {
		return path.Join("/", p) // a relative one is below the root directory, as the runtime has it
	}
	return p
}

// permissionsOf returns the permissions as the addition means them.
func (a *Addition) permissionsOf(requested string) (string, error) {
	if known := ordered(requested); a.KubeletPaths && known != "" {
		return known, nil // the runtime ignores the others
	}
	return permissionsOf(requested)
}

func (m *merger) addDevice(a *Addition, d device.HostDevice) error {
	if d.ContainerPath == "" {
		d.ContainerPath = d.HostPath
	}
	containerPath := a.containerPath(d.ContainerPath)
	hostPath, info, err := resolve(m.host, a.hostPath(d.HostPath), a.mayFollow)
	if err != nil {
		return err
	}
	if err := checkPath(containerPath); err != nil {
		return err
	}
	permissions, err := a.permissionsOf(d.Permissions)
	if err != nil {
		return err
	}
	if !a.KubeletPaths || !info.Mode().IsDir() {
		if err := checkDeviceNode(info); err != nil {
			return err
		}
		return m.placeDevice(a, hostPath, containerPath, permissions)
	}
	nodes, err := nodesIn(m.host, hostPath)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		err := m.placeDevice(a, path.Join(hostPath, node), path.Join(containerPath, node), permissions)
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *merger) placeDevice(a *Addition, hostPath, containerPath, permissions string) error {
	other, again := (*takenError)(nil), false
	if _, err := m.permissions.place(hostPath, permissions, a); errors.As(err, &other) {
		permissions, again = m.widen(hostPath, permissions)
	} else if err != nil {
		return fmt.Errorf("permissions: %w", err)
	}
	fresh, err := m.paths.place(containerPath, deviceAt(hostPath), a)
	_, isMount := m.paths[containerPath].value.(mountAt)
	switch {
	case errors.As(err, &other) && isMount:
		fresh = true // next to the mount
	case errors.As(err, &other):
		m.leaveOut(a, fmt.Sprintf("device %s at %s", hostPath, containerPath), err)
		return nil
	case err != nil:
		return fmt.Errorf("at %s: %w", containerPath, err)
	}
	if fresh || again {
		m.delta.Devices = append(
			m.delta.Devices,
			&runtimeapi.Device{ContainerPath: containerPath, HostPath: hostPath, Permissions: permissions},
		)
	}
	return nil
}

// widen gives a device further permissions, and returns those that it has then. If only the request
// has the device, and with fewer, it must be added again: the kernel allows what both say.
func (m *merger) widen(hostPath, further string) (permissions string, again bool) {
	there := m.permissions[hostPath]
	permissions = ordered(there.value + further)
	again = permissions != there.value
	there.value = permissions
	m.permissions[hostPath] = there
	for _, d := range m.delta.GetDevices() {
		if d.GetHostPath() == hostPath {
			d.Permissions, again = permissions, false
		}
	}
	return permissions, again
}

func (m *merger) addMount(a *Addition, mount device.HostMount) error {
	containerPath, source := a.containerPath(mount.ContainerPath), a.hostPath(mount.HostPath)
	hostPath, _, err := resolve(m.host, source, a.mayFollow)
	if a.KubeletPaths && a.Fresh && errors.Is(err, fs.ErrNotExist) {
		hostPath, err = source, nil
	}
	if err != nil {
		return err
	}
	if err := checkPath(containerPath); err != nil {
		return err
	}
	propagation, err := propagationOf(mount.Propagation)
	if err != nil {
		return err
	}
	value := mountAt{hostPath, mount.Readonly, mount.SELinuxRelabel, propagation}
	fresh, err := m.paths.place(containerPath, value, a)
	_, isMount := m.paths[containerPath].value.(mountAt)
	other := (*takenError)(nil)
	switch {
	case errors.As(err, &other) && !isMount:
		fresh = true // next to the device
	case errors.As(err, &other):
		m.leaveOut(a, fmt.Sprintf("mount of %s at %s", source, containerPath), err)
	case err != nil:
		return err
	}
	if fresh {
		m.delta.Mounts = append(m.delta.Mounts, &runtimeapi.Mount{
			ContainerPath: containerPath, HostPath: hostPath, Readonly: mount.Readonly,
			Propagation: propagation, SelinuxRelabel: mount.SELinuxRelabel,
		})
	}
	return nil
}

func (m *merger) addEnv(a *Addition, name string) error {
	value := a.Envs[name]
	if err := CheckEnv(name, value); err != nil {
		return err
	}
	fresh, err := m.envs.place(name, value, a)
	if other := (*takenError)(nil); errors.As(err, &other) {
		m.leaveOut(a, "environment variable "+name, err)
	} else if err != nil {
		return fmt.Errorf("environment variable %s: %w", name, err)
	}
	if fresh {
		m.delta.Envs = append(m.delta.Envs, &runtimeapi.KeyValue{Key: name, Value: []byte(value)})
	}
	return nil
}

func (m *merger) addAnnotation(a *Addition, key string) error {
	value := a.Annotations[key]
	if err := checkAnnotation(key, value); err != nil {
		return err
	}
	if err := checkOwner(key); err != nil {
		if a.KubeletPaths {
			m.leaveOut(a, "annotation "+key, err)
			return nil
		}
		return fmt.Errorf("annotation %s: %w", key, err)
	}
	if strings.HasPrefix(key, cdiAnnotation) {
		for name := range strings.SplitSeq(value, ",") {
			if err := m.addCDI(name); err != nil {
				return fmt.Errorf("annotation %s: %w", key, err)
			}
		}
		return nil
	}
	fresh, err := m.annotations.place(key, value, a)
	if other := (*takenError)(nil); errors.As(err, &other) {
		m.leaveOut(a, "annotation "+key, err)
	} else if err != nil {
		return fmt.Errorf("annotation %s: %w", key, err)
	}
	if fresh {
		if m.delta.Annotations == nil {
			m.delta.Annotations = map[string]string{}
		}
		m.delta.Annotations[key] = value
	}
	return nil
}

func (m *merger) addCDI(name string) error {
	if err := checkCDI(name); err != nil {
		return fmt.Errorf("CDI device %q: %w", name, err)
	}
	if !m.cdiDevices[name] {
		m.cdiDevices[name] = true
		m.delta.CDIDevices = append(m.delta.CDIDevices, &runtimeapi.CDIDevice{Name: name})
	}
	return nil
}
