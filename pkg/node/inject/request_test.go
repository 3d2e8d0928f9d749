// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

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
			CDIDevices:  []*runtimeapi.CDIDevice{{Name: "v.com/gpu=0"}},
		},
		SandboxConfig: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u"}},
	})
	// A field that is unknown yet.
	original = protowire.AppendBytes(protowire.AppendTag(original, 900, protowire.BytesType), []byte("future"))
	suffix, err := Suffix(&runtimeapi.ContainerConfig{
		Devices:     []*runtimeapi.Device{charDevice("/dev/gpu0")},
		Envs:        []*runtimeapi.KeyValue{{Key: "A", Value: []byte("ours")}},
		Annotations: map[string]string{"added": "yes"},
		CDIDevices:  []*runtimeapi.CDIDevice{{Name: "v.com/gpu=1"}},
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
			Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
			Envs: []*runtimeapi.KeyValue{
				{Key: "A", Value: []byte("\xff\x00binary")},
				{Key: "A", Value: []byte("ours")},
			},
			Devices:     []*runtimeapi.Device{charDevice("/dev/gpu0")},
			Annotations: map[string]string{"kept": "yes", "added": "yes"},
			CDIDevices:  []*runtimeapi.CDIDevice{{Name: "v.com/gpu=0"}, {Name: "v.com/gpu=1"}},
		},
		SandboxConfig: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u"}},
	}
	want.ProtoReflect().
		SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 900, protowire.BytesType), []byte("future")))
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// For everything that the kubelet may send, appending never turns a readable request into an
// unreadable one, and adds just the device.
func FuzzAppending(f *testing.F) {
	f.Add(
		request(
			f,
			&runtimeapi.CreateContainerRequest{PodSandboxId: "s", Config: &runtimeapi.ContainerConfig{Tty: true}},
		),
	)
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
