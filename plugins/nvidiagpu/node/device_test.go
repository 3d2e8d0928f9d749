// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvml"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvmltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The machines, as nvidia-smi topo -m shows them. PIX is one PCIe switch, PXB several, PHB a host
// bridge, NODE a socket, SYS the link between sockets.
const (
	pix, pxb, phb, node, sys = 10, 20, 30, 40, 50
)

// nvswitch8 is a server like DGX: eight GPUs, all joined by NVSwitch, two to a PCIe switch, four to
// a socket.
func nvswitch8() nvmltest.Machine {
	return nvmltest.Machine{
		Ancestor: nvmltest.Matrix(8, func(i, j int) int {
			switch {
			case i/2 == j/2:
				return pxb
			case i/4 == j/4:
				return node
			}
			return sys
		}),
		NVLink: nvmltest.Matrix(8, func(i, j int) bool { return i != j }),
	}
}

// pcie8 has eight GPUs without NVLink in two sockets, four under the switches of each.
func pcie8() nvmltest.Machine {
	return nvmltest.Machine{Ancestor: nvmltest.Matrix(8, func(i, j int) int {
		switch {
		case i/2 == j/2:
			return pix
		case i/4 == j/4:
			return pxb
		}
		return sys
	})}
}

// pairs4 has four GPUs on host bridges of their own, with NVLink bridges between 0 and 2, and
// between 1 and 3.
func pairs4() nvmltest.Machine {
	return nvmltest.Machine{
		Ancestor: nvmltest.Matrix(4, func(_, _ int) int { return phb }),
		NVLink:   nvmltest.Matrix(4, func(i, j int) bool { return i != j && i%2 == j%2 }),
	}
}

func TestTheTopologyOfServers(t *testing.T) {
	old := pairs4()
	old.OldDriver = true
	tests := map[string]struct {
		machine nvmltest.Machine
		want    []string // close and wide group by GPU
	}{
		"eight GPUs of an NVSwitch are one close group": {
			machine: nvswitch8(), want: []string{"0 0", "0 0", "0 0", "0 0", "0 0", "0 0", "0 0", "0 0"},
		},
		"eight GPUs of two sockets are two close groups": {
			machine: pcie8(), want: []string{"0 0", "0 0", "0 0", "0 0", "1 0", "1 0", "1 0", "1 0"},
		},
		"four GPUs with NVLink bridges are two pairs": {
			machine: pairs4(), want: []string{"0 0", "1 0", "0 0", "1 0"},
		},
		"a driver that knows no topology leaves each GPU by itself": {
			machine: old, want: []string{"0 0", "1 1", "2 2", "3 3"},
		},
		"no GPUs": {},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := started(t, nvmltest.Build(t, test.machine).Path)
			want := types.NewNodeInfoWithName("n1")
			for i, groups := range test.want {
				var close, wide int
				if _, err := fmt.Sscan(groups, &close, &wide); err != nil {
					t.Fatal(err)
				}
				prefix := fmt.Sprintf("resource/group/gpugrp1/%d/gpugrp0/%d/gpu/%s/", wide, close, nvmltest.UUID(i))
				for _, list := range []types.ResourceList{want.Capacity, want.Allocatable} {
					list[types.ResourceName(prefix+"cards")] = 1
					list[types.ResourceName(prefix+"memory")] = nvmltest.Memory
					list[types.ResourceName(prefix+"cores")] = 100
				}
			}
			for _, list := range []types.ResourceList{want.Capacity, want.Allocatable, want.KubeCap, want.KubeAlloc} {
				list["nvidia.com/gpu"] = int64(len(test.want))
			}
			if diff := cmp.Diff(want, update(t, d)); diff != "" {
				t.Errorf("node (-want +got):\n%s", diff)
			}
		})
	}
}

func TestALostGPUIsUnhealthyUntilItAnswersAgain(t *testing.T) {
	library := nvmltest.Build(t, pairs4())
	d := started(t, library.Path)
	whole := update(t, d)

	library.Lose(t, 0)
	without := update(t, d)
	if diff := cmp.Diff(whole.Capacity, without.Capacity); diff != "" {
		t.Errorf("capacity with a lost GPU (-want +got):\n%s", diff)
	}
	want := whole.Clone().Allocatable
	for name := range want {
		if id, _, ok := gpu.Split(name); ok && id == nvmltest.UUID(0) {
			delete(want, name)
		}
	}
	want["nvidia.com/gpu"] = 3
	if diff := cmp.Diff(want, without.Allocatable); diff != "" {
		t.Errorf("allocatable with a lost GPU (-want +got):\n%s", diff)
	}

	library.Lose(t)
	if diff := cmp.Diff(whole, update(t, d)); diff != "" {
		t.Errorf("with the GPU back (-want +got):\n%s", diff)
	}
}

func TestAGPUThatComesLateJoinsItsGroup(t *testing.T) {
	library := nvmltest.Build(t, pairs4())
	library.Lose(t, 0, 1)
	d := started(t, library.Path)
	before := update(t, d)
	if before.KubeCap["nvidia.com/gpu"] != 2 {
		t.Fatalf("KubeCap = %v", before.KubeCap)
	}

	library.Lose(t)
	after := update(t, d)
	for name := range before.Allocatable {
		if _, ok := after.Allocatable[name]; !ok {
			t.Errorf("%s has another name now", name)
		}
	}
	for _, name := range []types.ResourceName{
		"resource/group/gpugrp1/0/gpugrp0/0/gpu/" + types.ResourceName(nvmltest.UUID(0)) + "/cards",
		"resource/group/gpugrp1/0/gpugrp0/0/gpu/" + types.ResourceName(nvmltest.UUID(2)) + "/cards",
		"resource/group/gpugrp1/0/gpugrp0/1/gpu/" + types.ResourceName(nvmltest.UUID(1)) + "/cards",
	} {
		if after.Allocatable[name] != 1 {
			t.Errorf("there is no %s in %v", name, after.Allocatable)
		}
	}
}

func TestWithoutADriverStartSaysWhatToDo(t *testing.T) {
	d := New(Paths{NVML: "libnvidia-ml-that-is-not-there.so.1"})
	if err := d.New(); err != nil {
		t.Fatal(err)
	}
	err := d.Start()
	if err == nil ||
		!strings.Contains(err.Error(),
			"this node has no NVIDIA driver that answers (libnvidia-ml-that-is-not-there.so.1: cannot open") ||
		!strings.Contains(err.Error(), "install it, or remove the nvidiagpu plugin from this node") {
		t.Errorf("Start = %v", err)
	}
	if err := d.UpdateNodeInfo(types.NewNodeInfo()); err == nil {
		t.Error("UpdateNodeInfo succeeds without a driver")
	}
}

// TestEveryMachineMakesSense runs on each fake, and on this machine's own driver where it has
// one.
func TestEveryMachineMakesSense(t *testing.T) {
	libraries := map[string]string{
		"NVSwitch": nvmltest.Build(t, nvswitch8()).Path,
		"PCIe":     nvmltest.Build(t, pcie8()).Path,
		"pairs":    nvmltest.Build(t, pairs4()).Path,
	}
	if own, err := nvml.Open(nvml.DefaultLibrary); err == nil {
		if err := own.Close(); err != nil {
			t.Error(err)
		}
		libraries["this machine"] = nvml.DefaultLibrary
	}
	uuid := regexp.MustCompile(`^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	for name, path := range libraries {
		t.Run(name, func(t *testing.T) {
			d := started(t, path)
			first, second := update(t, d), update(t, d)
			if diff := cmp.Diff(first, second); diff != "" {
				t.Errorf("two answers differ:\n%s", diff)
			}
			container := types.NewContainerInfo()
			var cards int64
			for resource, quantity := range first.Allocatable {
				id, kind, ok := gpu.Split(resource)
				if !ok {
					continue
				}
				if !uuid.MatchString(id) || quantity < 1 ||
					!strings.HasPrefix(string(resource), "resource/group/gpugrp1/") {
					t.Errorf("%s = %d", resource, quantity)
				}
				if kind == gpu.Cards {
					cards++
					container.AllocateFrom[resource] = resource
				}
			}
			if count := first.KubeAlloc["nvidia.com/gpu"]; cards == 0 || count != cards {
				t.Errorf("%d GPUs are counted, %d are listed", count, cards)
			}
			mounts, paths, envs, err := d.Allocate(types.NewPodInfo(), container)
			if err != nil || len(mounts)+len(paths) != 0 ||
				len(strings.Split(envs[VisibleDevices], ",")) != int(cards) {
				t.Errorf("Allocate = %v, %v, %v, %v", mounts, paths, envs, err)
			}
		})
	}
}

func TestAContainerWithoutGPUsSeesNoneAlsoWithoutADriver(t *testing.T) {
	d := New(Paths{NVML: "/no/such/library.so"})
	if got := d.DenyEnvs(); len(got) != 1 || got[VisibleDevices] != "void" {
		t.Errorf("DenyEnvs = %v", got)
	}
}

func TestAContainerSeesTheGPUsThatItWasGiven(t *testing.T) {
	d := started(t, nvmltest.Build(t, pairs4()).Path)
	update(t, d)
	given := func(ids ...string) *types.ContainerInfo {
		container := types.NewContainerInfo()
		container.AllocateFrom["resource/group/nic/a/ports"] = "resource/group/nic/eth0/ports"
		for i, id := range ids {
			request := types.ResourceName(fmt.Sprintf("resource/group/gpugrp1/0/gpugrp0/0/gpu/%d/cards", i))
			container.AllocateFrom[request] = types.ResourceName(
				"resource/group/gpugrp1/0/gpugrp0/0/gpu/" + id + "/cards",
			)
		}
		return container
	}
	_, _, envs, err := d.Allocate(types.NewPodInfo(), given(nvmltest.UUID(2), nvmltest.UUID(0)))
	want := map[string]string{"NVIDIA_VISIBLE_DEVICES": nvmltest.UUID(0) + "," + nvmltest.UUID(2)}
	if diff := cmp.Diff(want, envs); diff != "" || err != nil {
		t.Errorf("two GPUs: %v (-want +got):\n%s", err, diff)
	}
	if _, _, envs, err := d.Allocate(types.NewPodInfo(), given()); envs != nil || err != nil {
		t.Errorf("no GPU: %v, %v", envs, err)
	}
	_, _, _, err = d.Allocate(types.NewPodInfo(), given("GPU-of-elsewhere"))
	if err == nil || err.Error() != `this node has no NVIDIA GPU "GPU-of-elsewhere": see nvidia-smi -L there` {
		t.Errorf("a GPU of elsewhere: %v", err)
	}
}

func started(t *testing.T, path string) *Device {
	t.Helper()
	return startedWith(t, path, filepath.Join(t.TempDir(), "run", "faults"))
}

func startedWith(t *testing.T, path, faultsFile string) *Device {
	t.Helper()
	return startedAt(t, Paths{NVML: path, Faults: faultsFile})
}

func startedAt(t *testing.T, paths Paths) *Device {
	t.Helper()
	d := New(paths)
	d.health.every = 0
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	if err := d.Start(); err != nil {
		t.Fatalf("started twice: %v", err)
	}
	return d
}

func update(t *testing.T, d *Device) *types.NodeInfo {
	t.Helper()
	info := types.NewNodeInfoWithName("n1")
	if err := d.UpdateNodeInfo(info); err != nil {
		t.Fatal(err)
	}
	return info
}
