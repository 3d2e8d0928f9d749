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

// kubelets is what a plugin of the kubelet's API adds that has just answered.
func kubelets(plugin string, allocation device.Allocation) Addition {
	return Addition{Plugin: plugin, Allocation: allocation, KubeletPaths: true, Fresh: true}
}

func node(hostPath, containerPath, permissions string) device.Allocation {
	return device.Allocation{Devices: []device.HostDevice{
		{HostPath: hostPath, ContainerPath: containerPath, Permissions: permissions},
	}}
}

// with is the request of a container that has a device, as one of a plugin at the kubelet.
func with(hostPath, containerPath, permissions string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{Devices: []*runtimeapi.Device{
		{HostPath: hostPath, ContainerPath: containerPath, Permissions: permissions},
	}}
}

func TestAnswersThatTheKubeletAcceptsAreAccepted(t *testing.T) {
	type allocation = device.Allocation
	volume := &runtimeapi.ContainerConfig{
		Mounts: []*runtimeapi.Mount{{ContainerPath: "/l/", HostPath: "/var/lib/kubelet/x"}},
	}
	for name, test := range map[string]struct {
		config    *runtimeapi.ContainerConfig
		additions []Addition
		want      *runtimeapi.ContainerConfig
		leftOut   []string
	}{
		"a device of two plugins has the permissions of both": {
			additions: []Addition{
				kubelets("a", node("/dev/gpu0", "/dev/gpu0", "r")), kubelets("b", node("/dev/gpu0", "/dev/gpu0", "wm")),
			},
			want: &runtimeapi.ContainerConfig{Devices: []*runtimeapi.Device{charDevice("/dev/gpu0")}},
		},
		"so has one that a third plugin has at another path": {
			additions: []Addition{
				kubelets("a", node("/dev/gpu0", "/dev/gpu0", "r")), kubelets("b", node("/dev/gpu0", "/dev/x", "w")),
				kubelets("c", node("/dev/gpu0", "/dev/gpu0", "rw")),
			},
			want: &runtimeapi.ContainerConfig{Devices: []*runtimeapi.Device{
				{ContainerPath: "/dev/gpu0", HostPath: "/dev/gpu0", Permissions: "rw"},
				{ContainerPath: "/dev/x", HostPath: "/dev/gpu0", Permissions: "rw"},
			}},
		},
		"permissions that are none are ignored": {
			additions: []Addition{kubelets("a", node("/dev/gpu0", "/dev/gpu0", "xwr"))},
			want: &runtimeapi.ContainerConfig{Devices: []*runtimeapi.Device{
				{ContainerPath: "/dev/gpu0", HostPath: "/dev/gpu0", Permissions: "rw"},
			}},
		},
		"of two devices at one path the first counts": {
			additions: []Addition{
				kubelets("a", node("/dev/gpu0", "/dev/x", "rw")), kubelets("b", node("/dev/gpu1", "/dev/x", "rw")),
			},
			want: &runtimeapi.ContainerConfig{Devices: []*runtimeapi.Device{
				{ContainerPath: "/dev/x", HostPath: "/dev/gpu0", Permissions: "rw"},
			}},
			leftOut: []string{`device plugin "b": device /dev/gpu1 at /dev/x is left out: device plugin "a" has ` +
				`device /dev/gpu0 there, this plugin wants device /dev/gpu1`},
		},
		"of two mounts at one path the first counts": {
			additions: []Addition{
				kubelets("a", allocation{Mounts: mount("/l", "/opt/lib")}),
				kubelets("b", allocation{Mounts: mount("/l", "/opt/other")}),
			},
			want: &runtimeapi.ContainerConfig{
				Mounts: []*runtimeapi.Mount{{ContainerPath: "/l", HostPath: "/opt/lib"}},
			},
			leftOut: []string{`device plugin "b": mount of /opt/other at /l is left out: device plugin "a" has ` +
				`mount of /opt/lib`},
		},
		"a volume of the pod counts": {
			config:    volume,
			additions: []Addition{kubelets("a", allocation{Mounts: mount("/l", "/opt/lib")})},
			want:      &runtimeapi.ContainerConfig{},
			leftOut: []string{`device plugin "a": mount of /opt/lib at /l is left out: the pod has mount of ` +
				`/var/lib/kubelet/x`},
		},
		"a device may be where the pod mounts its node": {
			config: &runtimeapi.ContainerConfig{
				Mounts: []*runtimeapi.Mount{{ContainerPath: "/dev/gpu0", HostPath: "/dev/gpu0"}},
			},
			additions: []Addition{kubelets("a", node("/dev/gpu0", "", "mrw"))},
			want:      &runtimeapi.ContainerConfig{Devices: []*runtimeapi.Device{charDevice("/dev/gpu0")}},
		},
		"a device and a mount of two plugins may be at one path": {
			additions: []Addition{
				kubelets("a", node("/dev/gpu0", "/dev/gpu0", "mrw")),
				kubelets("b", allocation{Mounts: mount("/dev/gpu0", "/dev/gpu0")}),
				kubelets("c", node("/dev/gpu0", "/dev/gpu0", "r")),
			},
			want: &runtimeapi.ContainerConfig{
				Devices: []*runtimeapi.Device{charDevice("/dev/gpu0")},
				Mounts:  []*runtimeapi.Mount{{ContainerPath: "/dev/gpu0", HostPath: "/dev/gpu0"}},
			},
		},
		"a plugin at the kubelet may have the same device with more permissions": {
			config:    with("/dev/gpu0", "/dev/gpu0", "mrw"),
			additions: []Addition{kubelets("a", node("/dev/gpu0", "/dev/gpu0", "rw"))},
			want:      &runtimeapi.ContainerConfig{},
		},
		"a device of a plugin at the kubelet gets further permissions": {
			config: with("/dev/gpu0", "/dev/gpu0", "r"),
			additions: []Addition{
				kubelets("a", node("/dev/gpu0", "/dev/gpu0", "w")), kubelets("b", node("/dev/gpu0", "/dev/gpu0", "mr")),
			},
			want: &runtimeapi.ContainerConfig{Devices: []*runtimeapi.Device{charDevice("/dev/gpu0")}},
		},
		"so does one that is at another path then": {
			config:    with("/dev/gpu0", "/dev/x", "r"),
			additions: []Addition{kubelets("a", node("/dev/gpu0", "/dev/gpu0", "w"))},
			want: &runtimeapi.ContainerConfig{Devices: []*runtimeapi.Device{
				{ContainerPath: "/dev/gpu0", HostPath: "/dev/gpu0", Permissions: "rw"},
			}},
		},
		"a plugin at the kubelet may have the same device by a link": {
			config:    with("/dev/link", "/dev/gpu0", "mrw"),
			additions: []Addition{kubelets("a", node("/dev/link", "/dev/gpu0", "rw"))},
			want:      &runtimeapi.ContainerConfig{},
		},
		"a device counts that a plugin at the kubelet has at the path": {
			config:    with("/dev/gpu1", "/dev/x", "mrw"),
			additions: []Addition{kubelets("a", node("/dev/gpu0", "/dev/x", "mrw"))},
			want:      &runtimeapi.ContainerConfig{},
			leftOut: []string{`device plugin "a": device /dev/gpu0 at /dev/x is left out: the pod has device ` +
				`/dev/gpu1 there`},
		},
		"a mount may be where a plugin at the kubelet has a device": {
			config:    with("/dev/gpu0", "/dev/gpu0", "mrw"),
			additions: []Addition{kubelets("a", allocation{Mounts: mount("/dev/gpu0", "/dev/gpu0")})},
			want: &runtimeapi.ContainerConfig{
				Mounts: []*runtimeapi.Mount{{ContainerPath: "/dev/gpu0", HostPath: "/dev/gpu0"}},
			},
		},
		"a plugin at the kubelet may mount the same": {
			config: &runtimeapi.ContainerConfig{
				Mounts: []*runtimeapi.Mount{{ContainerPath: "/l", HostPath: "/opt/lib"}},
			},
			additions: []Addition{kubelets("a", allocation{Mounts: mount("/l", "/opt/lib")})},
			want:      &runtimeapi.ContainerConfig{},
		},
		"an annotation counts that a plugin at the kubelet has set": {
			config:    &runtimeapi.ContainerConfig{Annotations: map[string]string{"k": "1"}},
			additions: []Addition{kubelets("a", allocation{Annotations: map[string]string{"k": "2"}})},
			want:      &runtimeapi.ContainerConfig{},
			leftOut:   []string{`device plugin "a": annotation k is left out: the pod has 1 there`},
		},
		"of two values of a variable the first counts": {
			additions: []Addition{
				kubelets("a", allocation{Envs: map[string]string{"A": "1", "B": "1"}}),
				kubelets("b", allocation{Envs: map[string]string{"A": "2", "C": "2"}}),
			},
			want: &runtimeapi.ContainerConfig{Envs: []*runtimeapi.KeyValue{
				{Key: "A", Value: []byte("1")}, {Key: "B", Value: []byte("1")}, {Key: "C", Value: []byte("2")},
			}},
			leftOut: []string{`device plugin "b": environment variable A is left out: device plugin "a" has 1 there, ` +
				`this plugin wants 2`},
		},
		"of two values of an annotation the first counts": {
			additions: []Addition{
				kubelets("a", allocation{Annotations: map[string]string{"k": "1"}}),
				kubelets("b", allocation{Annotations: map[string]string{"k": "2"}}),
			},
			want:    &runtimeapi.ContainerConfig{Annotations: map[string]string{"k": "1"}},
			leftOut: []string{`device plugin "b": annotation k is left out: device plugin "a" has 1 there`},
		},
		"annotations that are not the plugin's are left out": {
			additions: []Addition{kubelets("a", allocation{Annotations: map[string]string{
				"KubeDevice/Grant": "{}", "io.kubernetes.container.hash": "0", "k": "1",
			}})},
			want: &runtimeapi.ContainerConfig{Annotations: map[string]string{"k": "1"}},
			leftOut: []string{
				`annotation KubeDevice/Grant is left out: only KubeDevice may set it`,
				`annotation io.kubernetes.container.hash is left out: only the kubelet may set it`,
			},
		},
		"paths need not be in their shortest form": {
			additions: []Addition{kubelets("a", allocation{
				Devices: []device.HostDevice{{HostPath: "/dev//gpu0", ContainerPath: "/dev/./gpu0"}},
				Mounts:  mount("/l/", "/opt/../opt/lib"),
			})},
			want: &runtimeapi.ContainerConfig{
				Devices: []*runtimeapi.Device{charDevice("/dev/gpu0")},
				Mounts:  []*runtimeapi.Mount{{ContainerPath: "/l", HostPath: "/opt/lib"}},
			},
		},
		"relative paths of the container are below its root": {
			additions: []Addition{kubelets("a", allocation{
				Devices: []device.HostDevice{{HostPath: "/dev/gpu0", ContainerPath: "dev/gpu0"}},
				Mounts:  mount("l", "/opt/lib"),
			})},
			want: &runtimeapi.ContainerConfig{
				Devices: []*runtimeapi.Device{charDevice("/dev/gpu0")},
				Mounts:  []*runtimeapi.Mount{{ContainerPath: "/l", HostPath: "/opt/lib"}},
			},
		},
		"the source of a mount that is not there is the runtime's to make": {
			additions: []Addition{kubelets("a", allocation{Mounts: mount("/l", "/opt/none/x")})},
			want: &runtimeapi.ContainerConfig{
				Mounts: []*runtimeapi.Mount{{ContainerPath: "/l", HostPath: "/opt/none/x"}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, leftOut, err := Merge(host, test.config, test.additions)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, protocmp.Transform()); diff != "" {
				t.Errorf("the container gets (-want +got):\n%s", diff)
			}
			if len(leftOut) != len(test.leftOut) {
				t.Fatalf("left out: %q, want %q", leftOut, test.leftOut)
			}
			for i, want := range test.leftOut {
				if !strings.Contains(leftOut[i], want) {
					t.Errorf("left out: %q, want %q", leftOut[i], want)
				}
			}
		})
	}
}

func TestUnsafeAnswersAndThoseThatTheKubeletRefusesAreErrors(t *testing.T) {
	type allocation = device.Allocation
	for name, test := range map[string]struct {
		config    *runtimeapi.ContainerConfig
		additions []Addition
		want      string
	}{
		"a variable that a plugin of another kind sets": {
			additions: []Addition{
				by("a", allocation{Envs: map[string]string{"A": "1"}}),
				kubelets("b", allocation{Envs: map[string]string{"A": "2"}}),
			},
			want: `device plugin "b": environment variable A: device plugin "a" has 1 there, this plugin wants 2`,
		},
		"a device that a plugin at the kubelet has with fewer permissions than one of another kind wants": {
			config:    with("/dev/gpu0", "/dev/gpu0", "r"),
			additions: []Addition{by("a", node("/dev/gpu0", "", "rw"))}, want: "permissions: the pod has r",
		},
		"a device of a plugin of another kind where a plugin at the kubelet has another": {
			config:    with("/dev/gpu1", "/dev/gpu0", "mrw"),
			additions: []Addition{by("a", node("/dev/gpu0", "", ""))}, want: "the pod has device /dev/gpu1",
		},
		"a device that a plugin of another kind has with fewer permissions": {
			additions: []Addition{by("a", node("/dev/gpu0", "", "r")), kubelets("b", node("/dev/gpu0", "", "rw"))},
			want:      `device plugin "b": device /dev/gpu0: permissions: device plugin "a" has r there`,
		},
		"the whole file system": {
			additions: []Addition{kubelets("a", allocation{Mounts: mount("/l", "/"+"/")})}, want: "whole file system",
		},
		"the source of a mount that may have been there when the plugin answered": {
			additions: []Addition{{
				Plugin: "a", KubeletPaths: true, Allocation: allocation{Mounts: mount("/l", "/opt/none")},
			}},
			want: "/opt/none: file does not exist",
		},
		"permissions of which each is none": {
			additions: []Addition{kubelets("a", node("/dev/gpu0", "", "x"))}, want: `permissions "x"`,
		},
		"a device that is not there": {
			additions: []Addition{kubelets("a", node("/dev/gpu9", "", ""))}, want: "/dev/gpu9: file does not exist",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _, err := Merge(host, test.config, test.additions); err == nil ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, %v, want %q", got, err, test.want)
			}
		})
	}
}
