// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

func charDevice(path string) *runtimeapi.Device {
	return &runtimeapi.Device{ContainerPath: path, HostPath: path, Permissions: "mrw"}
}

func by(plugin string, allocation device.Allocation) Addition {
	return Addition{Plugin: plugin, Allocation: allocation}
}

func paths(hostPaths ...string) (devices []device.HostDevice) {
	for _, path := range hostPaths {
		devices = append(devices, device.HostDevice{HostPath: path})
	}
	return devices
}

func mount(containerPath, hostPath string) []device.HostMount {
	return []device.HostMount{{ContainerPath: containerPath, HostPath: hostPath}}
}

func TestAdditionsBecomeADelta(t *testing.T) {
	for name, test := range map[string]struct {
		config    *runtimeapi.ContainerConfig
		additions []Addition
		want      *runtimeapi.ContainerConfig
	}{
		"nothing is added for nothing": {want: &runtimeapi.ContainerConfig{}},
		"what two plugins add keeps the plugins' order": {
			additions: []Addition{
				by(
					"a",
					device.Allocation{
						Devices: paths("/dev/gpu1", "/dev/gpu0"), Envs: map[string]string{"Z": "1", "B": "2"},
						CDIDevices: []string{"v.com/gpu=1", "v.com/gpu=0"},
					},
				),
				by(
					"b",
					device.Allocation{
						Devices: paths("/dev/disk"), Mounts: mount("/lib/x", "/opt/lib"),
						CDIDevices: []string{"a.com/gpu=all"}, Annotations: map[string]string{"b.com/x": "1"},
					},
				),
			},
			want: &runtimeapi.ContainerConfig{
				Devices: []*runtimeapi.Device{
					charDevice("/dev/gpu1"), charDevice("/dev/gpu0"), charDevice("/dev/disk"),
				},
				Mounts:      []*runtimeapi.Mount{{ContainerPath: "/lib/x", HostPath: "/opt/lib"}},
				Envs:        []*runtimeapi.KeyValue{{Key: "B", Value: []byte("2")}, {Key: "Z", Value: []byte("1")}},
				Annotations: map[string]string{"b.com/x": "1"},
				CDIDevices: []*runtimeapi.CDIDevice{
					{Name: "v.com/gpu=1"}, {Name: "v.com/gpu=0"}, {Name: "a.com/gpu=all"},
				},
			},
		},
		"what two plugins want alike is added once": {
			additions: []Addition{
				by(
					"a",
					device.Allocation{
						Devices: paths("/dev/gpu0"), Envs: map[string]string{"A": "1"}, Mounts: mount("/l", "/opt/lib"),
						Annotations: map[string]string{"k": "v"}, CDIDevices: []string{"v.com/gpu=0"},
					},
				),
				by(
					"b",
					device.Allocation{
						Devices: paths("/dev/gpu0"), Envs: map[string]string{"A": "1"}, Mounts: mount("/l", "/opt/lib"),
						Annotations: map[string]string{"k": "v"}, CDIDevices: []string{"v.com/gpu=0"},
					},
				),
			},
			want: &runtimeapi.ContainerConfig{
				Devices:     []*runtimeapi.Device{charDevice("/dev/gpu0")},
				Mounts:      []*runtimeapi.Mount{{ContainerPath: "/l", HostPath: "/opt/lib"}},
				Envs:        []*runtimeapi.KeyValue{{Key: "A", Value: []byte("1")}},
				Annotations: map[string]string{"k": "v"},
				CDIDevices:  []*runtimeapi.CDIDevice{{Name: "v.com/gpu=0"}},
			},
		},
		"what the pod has alike is not added again": {
			config: &runtimeapi.ContainerConfig{
				Devices: []*runtimeapi.Device{
					{ContainerPath: "/dev/gpu0", HostPath: "/dev/gpu0", Permissions: "rwm"},
				},
				Mounts:      []*runtimeapi.Mount{{ContainerPath: "/l/", HostPath: "/opt/lib"}},
				Annotations: map[string]string{"k": "v"},
				CDIDevices:  []*runtimeapi.CDIDevice{{Name: "v.com/gpu=0"}},
			},
			additions: []Addition{by("a", device.Allocation{
				Devices: paths("/dev/gpu0"), Mounts: mount("/l", "/opt/lib"), Annotations: map[string]string{"k": "v"},
				CDIDevices: []string{"v.com/gpu=0"},
			})},
			want: &runtimeapi.ContainerConfig{},
		},
		"a plugin's environment variable wins over the pod's": {
			config: &runtimeapi.ContainerConfig{
				Envs: []*runtimeapi.KeyValue{{Key: "NVIDIA_VISIBLE_DEVICES", Value: []byte("all")}},
			},
			additions: []Addition{
				by("a", device.Allocation{Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-1"}}),
			},
			want: &runtimeapi.ContainerConfig{
				Envs: []*runtimeapi.KeyValue{{Key: "NVIDIA_VISIBLE_DEVICES", Value: []byte("GPU-1")}},
			},
		},
		"a device keeps its permissions, in the runtime's order, and its path in the container": {
			additions: []Addition{
				by(
					"a",
					device.Allocation{
						Devices: []device.HostDevice{
							{HostPath: "/dev/gpu1", ContainerPath: "/dev/gpu0", Permissions: "wr"},
						},
					},
				),
			},
			want: &runtimeapi.ContainerConfig{
				Devices: []*runtimeapi.Device{{ContainerPath: "/dev/gpu0", HostPath: "/dev/gpu1", Permissions: "rw"}},
			},
		},
		"a device at two paths is at both": {
			additions: []Addition{
				by(
					"a",
					device.Allocation{
						Devices: []device.HostDevice{
							{HostPath: "/dev/gpu1"}, {HostPath: "/dev/gpu1", ContainerPath: "/dev/gpu"},
						},
					},
				),
			},
			want: &runtimeapi.ContainerConfig{Devices: []*runtimeapi.Device{
				charDevice("/dev/gpu1"), {ContainerPath: "/dev/gpu", HostPath: "/dev/gpu1", Permissions: "mrw"},
			}},
		},
		"a mount keeps all that it says": {
			additions: []Addition{by("a", device.Allocation{Mounts: []device.HostMount{
				{
					ContainerPath: "/x", HostPath: "/opt/lib", Readonly: true, Propagation: device.HostToContainer,
					SELinuxRelabel: true,
				},
				{ContainerPath: "/y", HostPath: "/opt/lib", Propagation: device.Bidirectional},
			}})},
			want: &runtimeapi.ContainerConfig{Mounts: []*runtimeapi.Mount{
				{
					ContainerPath: "/x", HostPath: "/opt/lib", Readonly: true,
					Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, SelinuxRelabel: true,
				},
				{
					ContainerPath: "/y", HostPath: "/opt/lib",
					Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL,
				},
			}},
		},
		"declared links are followed, and the device keeps its name in the container": {
			additions: []Addition{
				by(
					"a",
					device.Allocation{
						Devices: paths("/dev/far"), Mounts: mount("/l", "/lib/driver"),
						Links: []string{"/dev/far", "/dev/by-id/x", "/lib"},
					},
				),
			},
			want: &runtimeapi.ContainerConfig{
				Devices: []*runtimeapi.Device{{ContainerPath: "/dev/far", HostPath: "/dev/gpu1", Permissions: "mrw"}},
				Mounts:  []*runtimeapi.Mount{{ContainerPath: "/l", HostPath: "/opt/lib/driver"}},
			},
		},
		"a plugin that cannot declare links may use them all": {
			additions: []Addition{
				{Plugin: "a", KubeletPaths: true, Allocation: device.Allocation{Devices: paths("/dev/far")}},
			},
			want: &runtimeapi.ContainerConfig{
				Devices: []*runtimeapi.Device{{ContainerPath: "/dev/far", HostPath: "/dev/gpu1", Permissions: "mrw"}},
			},
		},
		"a device under its own name and under a link's is one device": {
			additions: []Addition{
				by(
					"a",
					device.Allocation{
						Devices: []device.HostDevice{{HostPath: "/dev/link", ContainerPath: "/dev/gpu0"}},
						Links:   []string{"/dev/link"},
					},
				),
				by("b", device.Allocation{Devices: paths("/dev/gpu0")}),
			},
			want: &runtimeapi.ContainerConfig{Devices: []*runtimeapi.Device{charDevice("/dev/gpu0")}},
		},
		"an annotation of CDI devices is sent as what it means": {
			additions: []Addition{
				by(
					"a",
					device.Allocation{
						Annotations: map[string]string{"cdi.k8s.io/a": "v.com/gpu=0,v.com/gpu=1"},
						CDIDevices:  []string{"v.com/gpu=1"},
					},
				),
			},
			want: &runtimeapi.ContainerConfig{
				CDIDevices: []*runtimeapi.CDIDevice{{Name: "v.com/gpu=0"}, {Name: "v.com/gpu=1"}},
			},
		},
		"CDI names may have all that CDI allows": {
			additions: []Addition{
				by(
					"a",
					device.Allocation{CDIDevices: []string{"v/c=0", "vendor-1.example_x.com/gpu.v2=GPU-7f3a:0.1_x"}},
				),
			},
			want: &runtimeapi.ContainerConfig{
				CDIDevices: []*runtimeapi.CDIDevice{
					{Name: "v/c=0"}, {Name: "vendor-1.example_x.com/gpu.v2=GPU-7f3a:0.1_x"},
				},
			},
		},
	} {
		got, _, err := Merge(host, test.config, test.additions)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(test.want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestErrorsOfForbiddenAdditionsNameThePlugin(t *testing.T) {
	type allocation = device.Allocation
	for name, test := range map[string]struct {
		config *runtimeapi.ContainerConfig
		a, b   allocation // of two plugins
		want   string
	}{
		"a relative device path": {a: allocation{Devices: paths("dev/gpu0")}, want: "not absolute"},
		"a device path that climbs": {
			a: allocation{Devices: paths("/dev/../dev/gpu0")}, want: "shortest form",
		},
		"a device path with a doubled slash": {a: allocation{Devices: paths("/dev//gpu0")}, want: "shortest form"},
		"a device path with a NUL":           {a: allocation{Devices: paths("/dev/gpu0\x00")}, want: "NUL"},
		"a device path that is no text":      {a: allocation{Devices: paths("/dev/\xff")}, want: "UTF-8"},
		"a device at a path that climbs": {
			a:    allocation{Devices: []device.HostDevice{{HostPath: "/dev/gpu0", ContainerPath: "/dev/../x"}}},
			want: "shortest form",
		},
		"the root as a mount's target": {
			a: allocation{Mounts: mount("/", "/opt/lib")}, want: "whole file system",
		},
		"the root as a mount's source": {a: allocation{Mounts: mount("/l", "/")}, want: "whole file system"},
		"a device that is not there": {
			a: allocation{Devices: paths("/dev/gpu9")}, want: "/dev/gpu9: file does not exist",
		},
		"a file in place of a device": {
			a: allocation{Devices: paths("/dev/file")}, want: "not a device node",
		},
		"a directory in place of a device": {
			a: allocation{Devices: paths("/dev/directory")}, want: "not a device node",
		},
		"a link to a device": {
			a: allocation{Devices: paths("/dev/link")}, want: "/dev/link is a symbolic link",
		},
		"a chain of which one link is undeclared": {
			a:    allocation{Devices: paths("/dev/far"), Links: []string{"/dev/far"}},
			want: "/dev/by-id/x is a symbolic link",
		},
		"a link on the way to a mount": {
			a: allocation{Mounts: mount("/l", "/lib/driver")}, want: "/lib is a symbolic link",
		},
		"a declared link to a plain file": {
			a: allocation{Devices: paths("/dev/to-file"), Links: []string{"/dev/to-file"}}, want: "not a device node",
		},
		"a declared link to nothing": {
			a:    allocation{Devices: paths("/dev/dangling"), Links: []string{"/dev/dangling"}},
			want: "/dev/gpu9: file does not exist",
		},
		"a declared link to itself": {
			a:    allocation{Devices: paths("/dev/loop"), Links: []string{"/dev/loop"}},
			want: "more than 40 symbolic links",
		},
		"a declared link to the root": {
			a: allocation{Mounts: mount("/l", "/dev/top"), Links: []string{"/dev/top"}}, want: "whole file system",
		},
		"unknown permissions": {
			a:    allocation{Devices: []device.HostDevice{{HostPath: "/dev/gpu0", Permissions: "rx"}}},
			want: `permissions "rx"`,
		},
		"a mount source that is not there": {
			a: allocation{Mounts: mount("/l", "/opt/none")}, want: "/opt/none: file does not exist",
		},
		"a mount source that climbs": {
			a: allocation{Mounts: mount("/l", "/opt/../etc")}, want: "shortest form",
		},
		"a relative mount target": {
			a: allocation{Mounts: mount("l", "/opt/lib")}, want: "not absolute",
		},
		"an unknown propagation": {
			a:    allocation{Mounts: []device.HostMount{{ContainerPath: "/l", HostPath: "/opt/lib", Propagation: 3}}},
			want: "propagation 3",
		},
		"a mount where the pod has another": {
			config: &runtimeapi.ContainerConfig{
				Mounts: []*runtimeapi.Mount{{ContainerPath: "/l", HostPath: "/var/lib/kubelet/x"}},
			},
			a: allocation{Mounts: mount("/l", "/opt/lib")}, want: "the pod has mount of /var/lib/kubelet/x (read-write",
		},
		"a mount that the pod has, but writable": {
			config: &runtimeapi.ContainerConfig{
				Mounts: []*runtimeapi.Mount{{ContainerPath: "/l", HostPath: "/opt/lib", Readonly: true}},
			},
			a: allocation{Mounts: mount("/l", "/opt/lib")}, want: "the pod has",
		},
		"a mount where another plugin has another": {
			a: allocation{Mounts: mount("/l", "/opt/lib")}, b: allocation{Mounts: mount("/l", "/opt/other")},
			want: `device plugin "b": mount of /opt/other at /l: device plugin "a" has`,
		},
		"a device where the pod has another": {
			config: &runtimeapi.ContainerConfig{
				Devices: []*runtimeapi.Device{{ContainerPath: "/dev/gpu0", HostPath: "/dev/gpu1", Permissions: "mrw"}},
			},
			a:    allocation{Devices: paths("/dev/gpu0")},
			want: "the pod has device /dev/gpu1 there, this plugin wants device /dev/gpu0",
		},
		"a device that the pod has with fewer permissions": {
			config: &runtimeapi.ContainerConfig{
				Devices: []*runtimeapi.Device{{ContainerPath: "/dev/gpu0", HostPath: "/dev/gpu0", Permissions: "r"}},
			},
			a: allocation{Devices: paths("/dev/gpu0")}, want: "permissions: the pod has r",
		},
		"a device at a second path with other permissions": {
			a: allocation{Devices: paths("/dev/gpu0")}, b: allocation{
				Devices: []device.HostDevice{{HostPath: "/dev/gpu0", ContainerPath: "/dev/x", Permissions: "r"}},
			},
			want: `device plugin "b": device /dev/gpu0: permissions: ` +
				`device plugin "a" has mrw there, this plugin wants r`,
		},
		"a device where the pod has a mount": {
			config: &runtimeapi.ContainerConfig{
				Mounts: []*runtimeapi.Mount{{ContainerPath: "/dev/gpu0", HostPath: "/dev/gpu1"}},
			},
			a: allocation{Devices: paths("/dev/gpu0")}, want: "the pod has mount of /dev/gpu1",
		},
		"a mount where another plugin has a device": {
			a: allocation{Devices: paths("/dev/gpu0")}, b: allocation{Mounts: mount("/dev/gpu0", "/opt/lib")},
			want: `device plugin "b": mount of /opt/lib at /dev/gpu0: device plugin "a" has device /dev/gpu0 there`,
		},
		"an environment variable that two plugins set apart": {
			a: allocation{Envs: map[string]string{"A": "1"}}, b: allocation{Envs: map[string]string{"A": "2"}},
			want: `device plugin "b": environment variable A: device plugin "a" has 1 there, this plugin wants 2`,
		},
		"an environment variable without a name": {
			a: allocation{Envs: map[string]string{"": "1"}}, want: "not a valid name",
		},
		"an environment variable's name with '='": {
			a: allocation{Envs: map[string]string{"A=B": "1"}}, want: "not a valid name",
		},
		"an environment variable with a NUL": {a: allocation{Envs: map[string]string{"A": "1\x00"}}, want: "NUL"},
		"an annotation that the container has otherwise": {
			config: &runtimeapi.ContainerConfig{Annotations: map[string]string{"k": "1"}},
			a:      allocation{Annotations: map[string]string{"k": "2"}}, want: "annotation k: the pod has 1",
		},
		"an annotation that two plugins set apart": {
			a: allocation{Annotations: map[string]string{"k": "1"}}, b: allocation{
				Annotations: map[string]string{"k": "2"},
			},
			want: `device plugin "b": annotation k: device plugin "a" has 1`,
		},
		"the kubelet's annotation": {
			a:    allocation{Annotations: map[string]string{"io.kubernetes.container.hash": "0"}},
			want: "only the kubelet may set it",
		},
		"KubeDevice's annotation": {
			a: allocation{Annotations: map[string]string{"KubeDevice/Grant": "{}"}}, want: "only KubeDevice may set it",
		},
		"an annotation without a key": {
			a: allocation{Annotations: map[string]string{"": "1"}}, want: "the key not empty",
		},
		"an annotation that is no text": {a: allocation{Annotations: map[string]string{"k": "\xff"}}, want: "UTF-8"},
		"a CDI device without a class": {
			a:    allocation{CDIDevices: []string{"vendor.com=0"}},
			want: `CDI device "vendor.com=0": not a fully qualified name`,
		},
		"a CDI device without a name": {
			a: allocation{CDIDevices: []string{"vendor.com/gpu"}}, want: "not a fully qualified name",
		},
		"a CDI device with an empty name": {a: allocation{CDIDevices: []string{"vendor.com/gpu="}},
			want: "not a fully qualified name"},
		"a CDI device with two slashes": {
			a: allocation{CDIDevices: []string{"vendor.com/gpu/x=0"}}, want: "not a fully qualified name",
		},
		"a CDI vendor that begins with a digit": {
			a: allocation{CDIDevices: []string{"0vendor.com/gpu=0"}}, want: "not a fully qualified name",
		},
		"a CDI class that ends with a dot": {
			a: allocation{CDIDevices: []string{"vendor.com/gpu.=0"}}, want: "not a fully qualified name",
		},
		"a CDI name with a path in it": {
			a: allocation{CDIDevices: []string{"vendor.com/gpu=../0"}}, want: "not a fully qualified name",
		},
		"an annotation of CDI devices that names none": {
			a:    allocation{Annotations: map[string]string{"cdi.k8s.io/a": ""}},
			want: "annotation cdi.k8s.io/a: CDI device",
		},
	} {
		delta, _, err := Merge(host, test.config, []Addition{by("a", test.a), by("b", test.b)})
		if err == nil {
			t.Errorf("%s: no error, but %v", name, delta)
			continue
		}
		if !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "device plugin ") {
			t.Errorf("%s: %q does not say %q", name, err, test.want)
		}
	}
}
