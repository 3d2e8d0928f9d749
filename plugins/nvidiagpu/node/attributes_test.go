// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
)

// describedBy returns the attributes of the machine's GPUs, where /sys has this NUMA node for each.
func describedBy(t *testing.T, m nvmltest.Machine, numa string) map[string]device.Attributes {
	t.Helper()
	sys := t.TempDir()
	for i := range m.Ancestor {
		address := nvmltest.Address(i)
		place := filepath.Join(sys, "devices", "pci0000:0f", "0000:0f:01.0", address)
		link := filepath.Join(sys, "bus", address)
		if err := os.MkdirAll(place, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(place, link); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(place, "numa_node"), []byte(numa), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d := New(Paths{NVML: nvmltest.Build(t, m).Path, PCI: filepath.Join(sys, "bus")})
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	if err := d.UpdateNodeInfo(types.NewNodeInfo()); err != nil {
		t.Fatal(err)
	}
	attributes, err := d.DeviceAttributes()
	if err != nil {
		t.Fatal(err)
	}
	return attributes
}

func TestGPUsAreDescribedAsNVIDIAsDriverForClaimsDescribesThem(t *testing.T) {
	got := describedBy(t, nvmltest.Machine{
		Ancestor: [][]int{{0, 50, 50}, {50, 0, 50}, {50, 50, 0}},
		NVLink:   [][]bool{{false, true, false}, {true, false, false}, {false, false, false}},
	}, "1\n")
	if len(got) != 3 {
		t.Fatalf("%d GPUs are described: %v", len(got), got)
	}
	want := device.Attributes{
		"type": device.String("gpu"), "productName": device.String("Fake GPU"), "brand": device.String("Nvidia"),
		"architecture": device.String("Hopper"), "cudaComputeCapability": device.Version("9.0.0"),
		"driverVersion": device.Version("580.159.4"), "cudaDriverVersion": device.Version("13.0.0"),
		"resource.kubernetes.io/pcieRoot": device.String("pci0000:0f"),
		"resource.kubernetes.io/numaNode": device.Int(1),
	}
	for name, attributes := range got {
		wants := maps.Clone(want)
		for i := range 3 {
			if attributes["uuid"] != device.String(nvmltest.UUID(i)) {
				continue
			}
			wants["uuid"] = device.String(nvmltest.UUID(i))
			wants["resource.kubernetes.io/pciBusID"] = device.String(nvmltest.Address(i))
			if i < 2 {
				wants["nvlinkDomain"] = device.Int(0)
			}
		}
		if !maps.Equal(attributes, wants) {
			t.Errorf("%s is %v, want %v", name, attributes, wants)
		}
	}
}

func TestUnknownAttributesAreLeftOut(t *testing.T) {
	got := describedBy(t, nvmltest.Machine{Ancestor: [][]int{{0}}, OldDriver: true}, "-1\n")
	if len(got) != 1 {
		t.Fatalf("%d GPUs are described", len(got))
	}
	for _, attributes := range got {
		for _, name := range []string{
			"brand", "architecture", "cudaDriverVersion", "nvlinkDomain", "resource.kubernetes.io/numaNode", "profile",
		} {
			if value, there := attributes[name]; there {
				t.Errorf("%s is %v", name, value)
			}
		}
		if attributes["productName"] != device.String("Fake GPU") {
			t.Errorf("the rest is missing: %v", attributes)
		}
	}
}

func TestVersionsAreMadeSemantic(t *testing.T) {
	for text, want := range map[string]string{
		"580.159.04": "580.159.4", "9.0": "9.0.0", "535.54": "535.54.0", "": "", "9": "", "1.2.3.4": "", "1.x": "",
		"-1.0": "",
	} {
		if got, ok := semantic(text); got != want || ok != (want != "") {
			t.Errorf("%q became %q (%v), want %q", text, got, ok, want)
		}
	}
}

func TestAnInstanceIsDescribedByItsProfileAndItsGPU(t *testing.T) {
	library := nvmltest.Build(t, hopper())
	library.Partition(t, map[int][]nvmltest.Part{0: {library.At("3g.40gb", 0)}})
	d := configured(t, library, "flags: {migStrategy: mixed}")
	if err := d.UpdateNodeInfo(types.NewNodeInfo()); err != nil {
		t.Fatal(err)
	}
	got, err := d.DeviceAttributes()
	if err != nil || len(got) != 2 {
		t.Fatalf("the instance and the other GPU are %v, %v", got, err)
	}
	for name, attributes := range got {
		if attributes["type"] != device.String("mig") {
			continue
		}
		for attribute, want := range map[string]device.Attribute{
			"profile": device.String("3g.40gb"), "parentUUID": device.String(nvmltest.UUID(0)),
			"uuid": device.String(nvmltest.InstanceUUID(0, 1, 0)), "architecture": device.String("Hopper"),
		} {
			if attributes[attribute] != want {
				t.Errorf("%s of %s is %v, want %v", attribute, name, attributes[attribute], want)
			}
		}
		return
	}
	t.Errorf("no instance is described: %v", got)
}
