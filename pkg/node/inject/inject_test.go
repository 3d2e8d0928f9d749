// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// tree is a made-up file system.
type tree map[string]fs.FileMode

func (t tree) Lstat(path string) (fs.FileInfo, error) {
	mode, ok := t[path]
	if !ok {
		return nil, &fs.PathError{Op: "lstat", Path: path, Err: fs.ErrNotExist}
	}
	return info{path, mode}, nil
}

type info struct {
	name string
	mode fs.FileMode
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return 0 }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (i info) Sys() any           { return nil }

var _ fs.FileInfo = info{}

var host = tree{
	"/dev/gpu0": fs.ModeDevice | fs.ModeCharDevice, "/dev/gpu1": fs.ModeDevice | fs.ModeCharDevice, "/dev/disk": fs.ModeDevice,
	"/dev/link": fs.ModeSymlink, "/dev/folder": fs.ModeDir, "/dev/file": 0,
	"/opt/lib": fs.ModeDir, "/opt/other": fs.ModeDir,
}

func charDevice(path string) *runtimeapi.Device {
	return &runtimeapi.Device{ContainerPath: path, HostPath: path, Permissions: "mrw"}
}

func TestAdditionsBecomeADelta(t *testing.T) {
	for name, test := range map[string]struct {
		config    *runtimeapi.ContainerConfig
		additions []Addition
		want      *runtimeapi.ContainerConfig
	}{
		"nothing is added for nothing": {want: &runtimeapi.ContainerConfig{}},
		"devices, mounts and envs of two plugins keep the plugins' order": {
			additions: []Addition{
				{Plugin: "a", Devices: []string{"/dev/gpu1", "/dev/gpu0"}, Envs: map[string]string{"Z": "1", "B": "2"}},
				{Plugin: "b", Devices: []string{"/dev/disk"}, Mounts: []device.Mount{{ContainerPath: "/lib/x", HostPath: "/opt/lib", Readonly: true}}},
			},
			want: &runtimeapi.ContainerConfig{
				Devices: []*runtimeapi.Device{charDevice("/dev/gpu1"), charDevice("/dev/gpu0"), charDevice("/dev/disk")},
				Mounts:  []*runtimeapi.Mount{{ContainerPath: "/lib/x", HostPath: "/opt/lib", Readonly: true}},
				Envs:    []*runtimeapi.KeyValue{{Key: "B", Value: []byte("2")}, {Key: "Z", Value: []byte("1")}},
			},
		},
		"what two plugins want alike is added once": {
			additions: []Addition{
				{Plugin: "a", Devices: []string{"/dev/gpu0"}, Envs: map[string]string{"A": "1"}, Mounts: []device.Mount{{ContainerPath: "/l", HostPath: "/opt/lib"}}},
				{Plugin: "b", Devices: []string{"/dev/gpu0"}, Envs: map[string]string{"A": "1"}, Mounts: []device.Mount{{ContainerPath: "/l", HostPath: "/opt/lib"}}},
			},
			want: &runtimeapi.ContainerConfig{
				Devices: []*runtimeapi.Device{charDevice("/dev/gpu0")},
				Mounts:  []*runtimeapi.Mount{{ContainerPath: "/l", HostPath: "/opt/lib"}},
				Envs:    []*runtimeapi.KeyValue{{Key: "A", Value: []byte("1")}},
			},
		},
		"a device or mount that the pod has alike is not added again": {
			config: &runtimeapi.ContainerConfig{
				Devices: []*runtimeapi.Device{charDevice("/dev/gpu0")},
				Mounts:  []*runtimeapi.Mount{{ContainerPath: "/l/", HostPath: "/opt/lib"}},
			},
			additions: []Addition{{Plugin: "a", Devices: []string{"/dev/gpu0"}, Mounts: []device.Mount{{ContainerPath: "/l", HostPath: "/opt/lib"}}}},
			want:      &runtimeapi.ContainerConfig{},
		},
		"a plugin's environment variable wins over the pod's": {
			config:    &runtimeapi.ContainerConfig{Envs: []*runtimeapi.KeyValue{{Key: "NVIDIA_VISIBLE_DEVICES", Value: []byte("all")}}},
			additions: []Addition{{Plugin: "a", Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-1"}}},
			want:      &runtimeapi.ContainerConfig{Envs: []*runtimeapi.KeyValue{{Key: "NVIDIA_VISIBLE_DEVICES", Value: []byte("GPU-1")}}},
		},
	} {
		got, err := Merge(host, test.config, test.additions)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(test.want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestWhatMustNotBeAddedIsAnErrorThatNamesThePlugin(t *testing.T) {
	mount := func(container, host string) Addition {
		return Addition{Plugin: "a", Mounts: []device.Mount{{ContainerPath: container, HostPath: host}}}
	}
	for name, test := range map[string]struct {
		config    *runtimeapi.ContainerConfig
		additions []Addition
		want      string
	}{
		"a relative device path":             {additions: []Addition{{Plugin: "a", Devices: []string{"dev/gpu0"}}}, want: "not absolute"},
		"a device path that climbs":          {additions: []Addition{{Plugin: "a", Devices: []string{"/dev/../dev/gpu0"}}}, want: "shortest form"},
		"a device path with a doubled slash": {additions: []Addition{{Plugin: "a", Devices: []string{"/dev//gpu0"}}}, want: "shortest form"},
		"a device path with a NUL":           {additions: []Addition{{Plugin: "a", Devices: []string{"/dev/gpu0\x00"}}}, want: "NUL"},
		"the root":                           {additions: []Addition{mount("/", "/opt/lib")}, want: "whole file system"},
		"a device that is not there":         {additions: []Addition{{Plugin: "a", Devices: []string{"/dev/gpu9"}}}, want: "/dev/gpu9: file does not exist"},
		"a file in place of a device":        {additions: []Addition{{Plugin: "a", Devices: []string{"/dev/file"}}}, want: "not a device node"},
		"a folder in place of a device":      {additions: []Addition{{Plugin: "a", Devices: []string{"/dev/folder"}}}, want: "not a device node"},
		"a link in place of a device":        {additions: []Addition{{Plugin: "a", Devices: []string{"/dev/link"}}}, want: "symbolic link"},
		"a mount source that is not there":   {additions: []Addition{mount("/l", "/opt/none")}, want: "/opt/none: file does not exist"},
		"a mount source that climbs":         {additions: []Addition{mount("/l", "/opt/../etc")}, want: "shortest form"},
		"a relative mount target":            {additions: []Addition{mount("l", "/opt/lib")}, want: "not absolute"},
		"a mount where the pod has another": {
			config:    &runtimeapi.ContainerConfig{Mounts: []*runtimeapi.Mount{{ContainerPath: "/l", HostPath: "/var/lib/kubelet/x"}}},
			additions: []Addition{mount("/l", "/opt/lib")}, want: "the pod has",
		},
		"a mount that the pod has, but writable": {
			config:    &runtimeapi.ContainerConfig{Mounts: []*runtimeapi.Mount{{ContainerPath: "/l", HostPath: "/opt/lib", Readonly: true}}},
			additions: []Addition{mount("/l", "/opt/lib")}, want: "the pod has",
		},
		"a mount where another plugin has another": {
			additions: []Addition{mount("/l", "/opt/lib"), {Plugin: "b", Mounts: []device.Mount{{ContainerPath: "/l", HostPath: "/opt/other"}}}},
			want:      `device plugin "b": mount at /l: device plugin "a" has`,
		},
		"a device where the pod has another": {
			config:    &runtimeapi.ContainerConfig{Devices: []*runtimeapi.Device{{ContainerPath: "/dev/gpu0", HostPath: "/dev/gpu1", Permissions: "mrw"}}},
			additions: []Addition{{Plugin: "a", Devices: []string{"/dev/gpu0"}}}, want: "the pod has",
		},
		"a device that the pod has with fewer permissions": {
			config:    &runtimeapi.ContainerConfig{Devices: []*runtimeapi.Device{{ContainerPath: "/dev/gpu0", HostPath: "/dev/gpu0", Permissions: "r"}}},
			additions: []Addition{{Plugin: "a", Devices: []string{"/dev/gpu0"}}}, want: "the pod has",
		},
		"an environment variable that two plugins set apart": {
			additions: []Addition{{Plugin: "a", Envs: map[string]string{"A": "1"}}, {Plugin: "b", Envs: map[string]string{"A": "2"}}},
			want:      `device plugin "b": environment variable A`,
		},
		"an environment variable without a name":  {additions: []Addition{{Plugin: "a", Envs: map[string]string{"": "1"}}}, want: "not a valid name"},
		"an environment variable's name with '='": {additions: []Addition{{Plugin: "a", Envs: map[string]string{"A=B": "1"}}}, want: "not a valid name"},
		"an environment variable with a NUL":      {additions: []Addition{{Plugin: "a", Envs: map[string]string{"A": "1\x00"}}}, want: "NUL"},
	} {
		delta, err := Merge(host, test.config, test.additions)
		if err == nil {
			t.Errorf("%s: no error, but %v", name, delta)
			continue
		}
		if !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "device plugin ") {
			t.Errorf("%s: %q does not say %q", name, err, test.want)
		}
	}
}

func request(t testing.TB, message *runtimeapi.CreateContainerRequest) []byte {
	t.Helper()
	raw, err := proto.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestTheSuffixMergesIntoTheRequestAndKeepsItsBytes(t *testing.T) {
	original := request(t, &runtimeapi.CreateContainerRequest{
		PodSandboxId: "sandbox",
		Config: &runtimeapi.ContainerConfig{
			Metadata:    &runtimeapi.ContainerMetadata{Name: "main"},
			Envs:        []*runtimeapi.KeyValue{{Key: "A", Value: []byte("\xff\x00binary")}},
			Annotations: map[string]string{"kept": "yes"},
		},
		SandboxConfig: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u"}},
	})
	// A field that nobody knows yet.
	original = protowire.AppendBytes(protowire.AppendTag(original, 900, protowire.BytesType), []byte("future"))
	suffix, err := Suffix(&runtimeapi.ContainerConfig{
		Devices:     []*runtimeapi.Device{charDevice("/dev/gpu0")},
		Envs:        []*runtimeapi.KeyValue{{Key: "A", Value: []byte("ours")}},
		Annotations: map[string]string{"added": "yes"},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(append(original, suffix...))
	if err != nil {
		t.Fatal(err)
	}
	want := &runtimeapi.CreateContainerRequest{
		PodSandboxId: "sandbox",
		Config: &runtimeapi.ContainerConfig{
			Metadata:    &runtimeapi.ContainerMetadata{Name: "main"},
			Envs:        []*runtimeapi.KeyValue{{Key: "A", Value: []byte("\xff\x00binary")}, {Key: "A", Value: []byte("ours")}},
			Devices:     []*runtimeapi.Device{charDevice("/dev/gpu0")},
			Annotations: map[string]string{"kept": "yes", "added": "yes"},
		},
		SandboxConfig: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u"}},
	}
	want.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 900, protowire.BytesType), []byte("future")))
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever the kubelet sends, appending never turns a readable request into an unreadable one, and adds just the device.
func FuzzAppending(f *testing.F) {
	f.Add(request(f, &runtimeapi.CreateContainerRequest{PodSandboxId: "s", Config: &runtimeapi.ContainerConfig{Tty: true}}))
	f.Add([]byte{})
	f.Add([]byte{0x12, 0x00, 0x12, 0x02, 0x60, 0x01})
	suffix, err := Suffix(&runtimeapi.ContainerConfig{Devices: []*runtimeapi.Device{charDevice("/dev/gpu0")}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		before, err := Decode(raw)
		if err != nil {
			return
		}
		after, err := Decode(append(raw, suffix...))
		if err != nil {
			t.Fatalf("the edited request cannot be read: %v", err)
		}
		if before.Config == nil {
			before.Config = &runtimeapi.ContainerConfig{}
		}
		before.Config.Devices = append(before.Config.Devices, charDevice("/dev/gpu0"))
		if diff := cmp.Diff(before, after, protocmp.Transform()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
