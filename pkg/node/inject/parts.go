// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
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

func (m *merger) addDevice(a *Addition, d device.HostDevice) error {
	if d.ContainerPath == "" {
		d.ContainerPath = d.HostPath
	}
	hostPath, info, err := resolve(m.host, d.HostPath, a.mayFollow)
	if err != nil {
		return err
	}
	if err := checkPath(d.ContainerPath); err != nil {
		return err
	}
	permissions, err := permissionsOf(d.Permissions)
	if err != nil {
		return err
	}
	if !a.KubeletPaths || !info.Mode().IsDir() {
		if err := checkDeviceNode(info); err != nil {
			return err
		}
		return m.placeDevice(a, hostPath, d.ContainerPath, permissions)
	}
	nodes, err := nodesIn(m.host, hostPath)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		err := m.placeDevice(a, path.Join(hostPath, node), path.Join(d.ContainerPath, node), permissions)
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *merger) placeDevice(a *Addition, hostPath, containerPath, permissions string) error {
	if _, err := m.permissions.place(hostPath, permissions, a.Plugin); err != nil {
		return fmt.Errorf("permissions: %w", err)
	}
	fresh, err := m.paths.place(containerPath, deviceAt{hostPath, permissions}, a.Plugin)
	if err != nil {
		return fmt.Errorf("at %s: %w", containerPath, err)
	}
	if fresh {
		m.delta.Devices = append(
			m.delta.Devices,
			&runtimeapi.Device{ContainerPath: containerPath, HostPath: hostPath, Permissions: permissions},
		)
	}
	return nil
}

func (m *merger) addMount(a *Addition, mount device.HostMount) error {
	hostPath, _, err := resolve(m.host, mount.HostPath, a.mayFollow)
	if err != nil {
		return err
	}
	if err := checkPath(mount.ContainerPath); err != nil {
		return err
	}
	propagation, err := propagationOf(mount.Propagation)
	if err != nil {
		return err
	}
	fresh, err := m.paths.place(
		mount.ContainerPath,
		mountAt{hostPath, mount.Readonly, mount.SELinuxRelabel, propagation},
		a.Plugin,
	)
	if err != nil {
		return err
	}
	if fresh {
		m.delta.Mounts = append(m.delta.Mounts, &runtimeapi.Mount{
			ContainerPath: mount.ContainerPath, HostPath: hostPath, Readonly: mount.Readonly,
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
	fresh, err := m.envs.place(name, value, a.Plugin)
	if err != nil {
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
	if strings.HasPrefix(key, cdiAnnotation) {
		for name := range strings.SplitSeq(value, ",") {
			if err := m.addCDI(name); err != nil {
				return fmt.Errorf("annotation %s: %w", key, err)
			}
		}
		return nil
	}
	fresh, err := m.annotations.place(key, value, a.Plugin)
	if err != nil {
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
