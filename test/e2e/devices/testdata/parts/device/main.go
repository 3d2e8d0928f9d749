// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A device plugin that gives its one part in every way there is.
package main

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"syscall"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const (
	part types.ResourceName = "resource/group/part/first/pieces"

	// number is that of a character device without a driver: opening it gives ENXIO where it is
	// allowed, and EPERM where not.
	number = 60<<8 | 110

	cdiFile = `{"cdiVersion": "0.5.0", "kind": "example.com/part",
  "devices": [{"name": "first", "containerEdits": {"env": ["FROM_CDI=yes"]}}]}`
)

type parts struct{}

var (
	_ device.Device    = parts{}
	_ device.Allocator = parts{}
	_ device.Isolator  = parts{}
)

// CreateDevicePlugin is the entry point.
func CreateDevicePlugin() (device.Device, error) { return parts{}, nil }

func (parts) GetName() string { return "parts" }
func (parts) New() error      { return nil }

func (parts) Start() error {
	var err error
	done := func(step error) {
		if !errors.Is(step, fs.ErrExist) {
			err = errors.Join(err, step)
		}
	}
	for _, directory := range []string{"/dev/parts/by-name", "/run/parts", "/var/run/cdi"} {
		done(os.MkdirAll(directory, 0o755))
	}
	done(syscall.Mknod("/dev/parts/0", syscall.S_IFCHR|0o666, number))
	done(os.Symlink("../0", "/dev/parts/by-name/first"))
	done(os.WriteFile("/run/parts/manual", []byte("read me\n"), 0o644))
	done(os.WriteFile("/var/run/cdi/example.com-part.json", []byte(cdiFile), 0o644))
	return err
}

func (parts) UpdateNodeInfo(node *types.NodeInfo) error {
	node.Capacity[part], node.Allocatable[part] = 1, 1
	return nil
}

func (parts) Allocate(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
	return nil, nil, nil, errors.New("this is for hosts that do not know Allocator")
}

func (parts) AllocateContainer(_ *types.PodInfo, container *types.ContainerInfo) (*device.Allocation, error) {
	if !slices.Contains(slices.Collect(maps.Values(container.AllocateFrom)), part) {
		return nil, nil
	}
	return &device.Allocation{
		Devices: []device.HostDevice{
			{HostPath: "/dev/parts/by-name/first", ContainerPath: "/dev/part", Permissions: "r"},
		},
		Mounts: []device.HostMount{
			{HostPath: "/run/parts", ContainerPath: "/opt/parts", Readonly: true, Propagation: device.HostToContainer},
		},
		Envs:        map[string]string{"VISIBLE_PARTS": "first"},
		Annotations: map[string]string{"example.com/part": "first"},
		CDIDevices:  []string{"example.com/part=first"},
		Links:       []string{"/dev/parts/by-name/first"},
	}, nil
}

func (parts) DenyEnvs() map[string]string { return map[string]string{"VISIBLE_PARTS": "void"} }
