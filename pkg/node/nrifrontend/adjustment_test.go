// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifrontend

import (
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// null is /dev/null, which is 1:3 on every Linux machine.
func null(t *testing.T, at string) *api.LinuxDevice {
	t.Helper()
	node, err := nodeAt("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	if node.GetType() != "c" || node.GetMajor() != 1 || node.GetMinor() != 3 {
		t.Fatalf("/dev/null is %v", node)
	}
	node.Path = at
	return node
}

func TestAnAdjustmentSaysWhatAdmissionAdds(t *testing.T) {
	rule := func(allow bool, access string) *api.LinuxDeviceCgroup {
		return &api.LinuxDeviceCgroup{
			Allow: allow, Type: "c", Major: api.Int64(int64(1)), Minor: api.Int64(int64(3)), Access: access,
		}
	}
	device := func(rules ...*api.LinuxDeviceCgroup) *api.ContainerAdjustment {
		linux := &api.LinuxContainerAdjustment{Devices: []*api.LinuxDevice{null(t, "/dev/card")}}
		if len(rules) > 0 {
			linux.Resources = &api.LinuxResources{Devices: rules}
		}
		return &api.ContainerAdjustment{Linux: linux}
	}
	mounted := func(options ...string) *api.ContainerAdjustment {
		return &api.ContainerAdjustment{Mounts: []*api.Mount{
			{Destination: "/in", Source: "/usr", Type: "bind", Options: options},
		}}
	}
	for name, test := range map[string]struct {
		addition *runtimeapi.ContainerConfig
		want     *api.ContainerAdjustment
	}{
		"a device to read and write": {withDevice("rw"), device()},
		"a device with all permissions": {
			withDevice("mrw"), device(rule(true, "m")),
		},
		"a device to read":       {withDevice("r"), device(rule(false, "w"))},
		"a device to mknod only": {withDevice("m"), device(rule(false, "rw"), rule(true, "m"))},
		"a mount to read": {
			withMount(&runtimeapi.Mount{ContainerPath: "/in", HostPath: "/usr", Readonly: true}),
			mounted("rbind", "rprivate", "ro"),
		},
		"a mount that sees mounts of the node": {
			withMount(&runtimeapi.Mount{
				ContainerPath: "/in", HostPath: "/usr",
				Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
			}),
			mounted("rbind", "rslave", "rw"),
		},
		"a mount in both directions": {
			withMount(&runtimeapi.Mount{
				ContainerPath: "/in", HostPath: "/usr",
				Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL,
			}),
			mounted("rbind", "rshared", "rw"),
		},
		"a variable, an annotation and a CDI device": {
			&runtimeapi.ContainerConfig{
				Envs:        []*runtimeapi.KeyValue{{Key: "A", Value: []byte("b=c")}},
				Annotations: map[string]string{"x/y": "z"},
				CDIDevices:  []*runtimeapi.CDIDevice{{Name: "example.com/gpu=0"}},
			},
			&api.ContainerAdjustment{
				Env: []*api.KeyValue{{Key: "A", Value: "b=c"}}, Annotations: map[string]string{"x/y": "z"},
				CDIDevices: []*api.CDIDevice{{Name: "example.com/gpu=0"}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := adjustmentOf(test.addition)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, protocmp.Transform()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPartsThatNRICannotExpressAreErrors(t *testing.T) {
	for name, test := range map[string]struct {
		addition *runtimeapi.ContainerConfig
		want     string
	}{
		"a variable that NRI would remove": {
			&runtimeapi.ContainerConfig{Envs: []*runtimeapi.KeyValue{{Key: "-PATH"}}}, "environment variable -PATH",
		},
		"an annotation that NRI would remove": {
			&runtimeapi.ContainerConfig{Annotations: map[string]string{"-a/b": ""}}, "annotation -a/b",
		},
		"a mount that is relabelled": {
			withMount(&runtimeapi.Mount{ContainerPath: "/in", HostPath: "/usr", SelinuxRelabel: true}), "SELinux",
		},
		"what a later release may inject": {
			&runtimeapi.ContainerConfig{Linux: &runtimeapi.LinuxContainerConfig{
				Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1},
			}}, "--mode=cri",
		},
		"a device that went away": {
			&runtimeapi.ContainerConfig{Devices: []*runtimeapi.Device{{HostPath: "/dev/gone"}}}, "/dev/gone",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := adjustmentOf(test.addition); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func withDevice(permissions string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{Devices: []*runtimeapi.Device{
		{ContainerPath: "/dev/card", HostPath: "/dev/null", Permissions: permissions},
	}}
}

func withMount(m *runtimeapi.Mount) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{Mounts: []*runtimeapi.Mount{m}}
}

func TestAContainerIsReadAsTheKubeletDescribedIt(t *testing.T) {
	any64 := api.Int64(int64(-1))
	pod := &api.PodSandbox{Uid: "u", Annotations: map[string]string{"KubeDevice/DeviceInfo": "{}"}}
	for name, test := range map[string]struct {
		container *api.Container
		want      *runtimeapi.ContainerConfig
	}{
		"variables, mounts, CDI devices, and annotations of its own": {
			&api.Container{
				Name: "main", Env: []string{"A=b=c", "EMPTY="},
				Annotations: map[string]string{"KubeDevice/DeviceInfo": "{}", "own": "1"},
				CDIDevices:  []*api.CDIDevice{{Name: "example.com/gpu=0"}},
				Mounts: []*api.Mount{
					{Destination: "/proc", Type: "proc", Source: "proc"},
					{Destination: "/in", Type: "bind", Source: "/usr", Options: []string{"rbind", "rslave", "ro"}},
				},
			},
			&runtimeapi.ContainerConfig{
				Envs:        []*runtimeapi.KeyValue{{Key: "A", Value: []byte("b=c")}, {Key: "EMPTY"}},
				Annotations: map[string]string{"own": "1"},
				CDIDevices:  []*runtimeapi.CDIDevice{{Name: "example.com/gpu=0"}},
				Mounts: []*runtimeapi.Mount{{
					ContainerPath: "/in", HostPath: "/usr", Readonly: true,
					Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
				}},
			},
		},
		"devices with what their rules allow": {
			&api.Container{Linux: &api.LinuxContainer{
				Devices: []*api.LinuxDevice{null(t, "/dev/null"), null(t, "/dev/card")},
				Resources: &api.LinuxResources{Devices: []*api.LinuxDeviceCgroup{
					{Allow: false, Access: "rwm"},
					{Allow: true, Type: "c", Major: any64, Minor: any64, Access: "m"},
					{Allow: true, Type: "c", Major: api.Int64(int64(1)), Minor: api.Int64(int64(3)), Access: "rw"},
				}},
			}},
			&runtimeapi.ContainerConfig{Devices: []*runtimeapi.Device{
				{ContainerPath: "/dev/null", HostPath: "/dev/null", Permissions: "rw"},
				{ContainerPath: "/dev/card", HostPath: "c 1:3", Permissions: "rw"},
			}},
		},
		"a privileged one, which has all devices": {
			&api.Container{Linux: &api.LinuxContainer{
				Devices:   []*api.LinuxDevice{null(t, "/dev/null")},
				Resources: &api.LinuxResources{Devices: []*api.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}},
			}},
			&runtimeapi.ContainerConfig{Linux: &runtimeapi.LinuxContainerConfig{
				SecurityContext: &runtimeapi.LinuxContainerSecurityContext{Privileged: true},
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.want.Metadata = &runtimeapi.ContainerMetadata{Name: test.container.GetName()}
			got := containerOf(pod, test.container).Config
			if diff := cmp.Diff(test.want, got, protocmp.Transform(), protocmp.IgnoreEmptyMessages()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
