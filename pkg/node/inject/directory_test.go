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

func TestADirectoryInPlaceOfADeviceStandsForTheDeviceNodesInIt(t *testing.T) {
	readable := func(containerPath, hostPath string) *runtimeapi.Device {
		return &runtimeapi.Device{ContainerPath: containerPath, HostPath: hostPath, Permissions: "rw"}
	}
	for name, test := range map[string]struct {
		device device.HostDevice
		want   []*runtimeapi.Device
	}{
		"with those in directorys below it, and without what is no device": {
			device.HostDevice{HostPath: "/snd"}, []*runtimeapi.Device{
				charDevice("/snd/more/pcm"), charDevice("/snd/seq"), charDevice("/snd/timer"),
			},
		},
		"at the path in the container, with the permissions of the directory": {
			device.HostDevice{HostPath: "/snd", ContainerPath: "/dev/snd", Permissions: "rw"},
			[]*runtimeapi.Device{
				readable("/dev/snd/more/pcm", "/snd/more/pcm"), readable("/dev/snd/seq", "/snd/seq"),
				readable("/dev/snd/timer", "/snd/timer"),
			},
		},
		"where a link leads": {
			device.HostDevice{HostPath: "/to-snd/more", ContainerPath: "/dev/snd", Permissions: "rw"},
			[]*runtimeapi.Device{readable("/dev/snd/pcm", "/snd/more/pcm")},
		},
	} {
		got, _, err := Merge(
			host,
			nil,
			[]Addition{
				{
					Plugin:       "a",
					KubeletPaths: true,
					Allocation:   device.Allocation{Devices: []device.HostDevice{test.device}},
				},
			},
		)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(test.want, got.GetDevices(), protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestADirectoryInPlaceOfADeviceIsRefused(t *testing.T) {
	another := []Addition{by("b", node("/dev/gpu0", "/snd/seq", "mrw"))}
	for name, test := range map[string]struct {
		before []Addition
		path   string
		want   string
	}{
		"if there are no device nodes in it": {
			path: "/opt/lib", want: `device plugin "a": device /opt/lib: the directory has no device nodes`,
		},
		"if one below it cannot be read": {
			path: "/keys", want: "device /keys: /keys/locked: permission denied",
		},
		"if a plugin of another kind has something else where one of them goes": {
			another, "/snd", `device /snd: at /snd/seq: device plugin "b" has device /dev/gpu0 there`,
		},
	} {
		_, _, err := Merge(
			host,
			&runtimeapi.ContainerConfig{},
			append(test.before, kubelets("a", device.Allocation{Devices: paths(test.path)})),
		)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}
