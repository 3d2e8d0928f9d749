// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package sharelibrary

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const (
	gpuA   = "resource/group/gpugrp0/0/gpu/GPU-a"
	gpuB   = "resource/group/gpugrp0/0/gpu/GPU-b"
	gpuC   = "resource/group/gpugrp0/0/gpu/GPU-c" // whose bus ID is not known
	other  = "resource/group/gpu/other"           // another vendor's
	all    = 80 << 30
	gib    = 1 << 30
	nvidia = "nvidia.com/gpu"
)

// gpus is a plugin with GPUs of 80 GiB.
type gpus struct {
	device.Device
	name  string
	plain types.ResourceName
	buses map[string]string // by GPU
}

func (g *gpus) New() error { return nil }

func (g *gpus) Start() error { return nil }

func (g *gpus) GetName() string { return g.name }

func (g *gpus) UpdateNodeInfo(info *types.NodeInfo) error {
	for name := range g.buses {
		for kind, quantity := range map[string]int64{"cards": 1, "memory": all, "cores": 100} {
			resource := types.ResourceName(name + "/" + kind)
			info.Capacity[resource], info.Allocatable[resource] = quantity, quantity
		}
	}
	info.KubeCap[g.plain], info.KubeAlloc[g.plain] = int64(len(g.buses)), int64(len(g.buses))
	return nil
}

func (g *gpus) DeviceAttributes() (map[string]device.Attributes, error) {
	list := map[string]device.Attributes{}
	for name, bus := range g.buses {
		if bus != "" {
			list[name] = device.Attributes{"resource.kubernetes.io/pciBusID": device.String(bus)}
		}
	}
	return list, nil
}

// library returns a library on a node with these GPUs.
func library(t *testing.T, settings Settings) *Library {
	t.Helper()
	load := func(context.Context) (loaded []pluginload.Loaded[device.Device], _ []error) {
		for _, g := range []*gpus{
			{name: "a", plain: nvidia, buses: map[string]string{gpuA: "0000:81:00.0", gpuB: "0000:01:00.0", gpuC: ""}},
			{name: "b", plain: "example.com/gpu", buses: map[string]string{other: ""}},
		} {
			loaded = append(loaded, pluginload.Loaded[device.Device]{Name: g.name, Plugin: g})
		}
		return loaded, nil
	}
	files := plugins.NewFiles("node-1", load, plugins.DefaultTiming(), nil)
	manager := plugins.New("node-1", files)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{}, 2)
	go func() { files.Run(ctx); ended <- struct{}{} }()
	go func() { manager.Run(ctx); ended <- struct{}{} }()
	t.Cleanup(func() { cancel(); <-ended; <-ended })
	<-manager.Synced()
	return New(settings, t.TempDir(), manager)
}

// file makes a library.
func file(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "libvgpu.so.2")
	if err := os.WriteFile(path, []byte("a library"), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// claim is a container that holds these quantities.
func claim(quantities types.ResourceList) plugins.Claim {
	container := types.NewContainerInfo()
	for name, quantity := range quantities {
		request := types.ResourceName(fmt.Sprint("resource/group/gpu/!", len(container.DevRequests), "/", name))
		container.DevRequests[request], container.AllocateFrom[request] = quantity, name
	}
	return plugins.Claim{Container: container}
}

func TestContainersWithSharesGetTheLibraryAndItsVariables(t *testing.T) {
	path := file(t)
	link := filepath.Join(filepath.Dir(path), "libvgpu.so")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	locks := t.TempDir()
	l := library(t, Settings{Path: link, Locks: locks})
	for what, test := range map[string]struct {
		holds types.ResourceList
		want  map[string]string // beyond what all get; nil for a container without the library
		err   string
	}{
		"no device":                    {},
		"a whole GPU":                  {holds: types.ResourceList{gpuA + "/cards": 1}},
		"all memory of a GPU":          {holds: types.ResourceList{gpuA + "/memory": all}},
		"a share of another vendor's":  {holds: types.ResourceList{other + "/memory": gib}},
		"a share of a GPU that is not": {holds: types.ResourceList{"resource/group/gpu/GPU-x/memory": gib}},
		"a share": {
			holds: types.ResourceList{gpuC + "/memory": 20 * gib},
			want:  map[string]string{"CUDA_DEVICE_MEMORY_LIMIT_0": "20480m", "CUDA_DEVICE_SM_LIMIT": "0"},
		},
		"a share with cores": {
			holds: types.ResourceList{gpuA + "/memory": gib + mebibyte - 1, gpuA + "/cores": 30},
			want:  map[string]string{"CUDA_DEVICE_MEMORY_LIMIT_0": "1024m", "CUDA_DEVICE_SM_LIMIT": "30"},
		},
		"a share of less than the unit, which 0 would not limit": {
			holds: types.ResourceList{gpuA + "/memory": 1},
			want:  map[string]string{"CUDA_DEVICE_MEMORY_LIMIT_0": "1m", "CUDA_DEVICE_SM_LIMIT": "0"},
		},
		"the same of two GPUs": {
			holds: types.ResourceList{
				gpuA + "/memory": gib, gpuC + "/memory": gib, gpuA + "/cores": 30, gpuC + "/cores": 20,
			},
			want: map[string]string{
				"CUDA_DEVICE_MEMORY_LIMIT_0": "1024m", "CUDA_DEVICE_MEMORY_LIMIT_1": "1024m",
				"CUDA_DEVICE_SM_LIMIT": "20",
			},
		},
		"more of the GPU that is the second on the bus": {
			holds: types.ResourceList{gpuA + "/memory": 2 * gib, gpuB + "/memory": gib},
			want: map[string]string{
				"CUDA_DEVICE_MEMORY_LIMIT_0": "1024m", "CUDA_DEVICE_MEMORY_LIMIT_1": "2048m",
				"CUDA_DEVICE_SM_LIMIT": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
			},
		},
		"a share next to a whole GPU, which is the first": {
			holds: types.ResourceList{gpuA + "/memory": 2 * gib, gpuB + "/cards": 1},
			want: map[string]string{
				"CUDA_DEVICE_MEMORY_LIMIT_1": "2048m", "CUDA_DEVICE_SM_LIMIT": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
			},
		},
		"different shares whose order is not known": {
			holds: types.ResourceList{gpuA + "/memory": 2 * gib, gpuC + "/memory": gib},
			err:   "request the same of each GPU",
		},
	} {
		got, limited, err := l.Limit(claim(test.holds))
		if fmt.Sprint(err) != "<nil>" && (test.err == "" || !strings.Contains(err.Error(), test.err)) ||
			err == nil && test.err != "" || limited != (test.want != nil) {
			t.Errorf("%s: limited %t, %v", what, limited, err)
		}
		want := inject.Addition{}
		if test.want != nil {
			maps.Copy(test.want, fixed)
			want = inject.Addition{Plugin: name, Allocation: device.Allocation{
				Envs: test.want, Mounts: []device.HostMount{
					{HostPath: path, ContainerPath: "/usr/local/vgpu/libvgpu.so", Readonly: true},
					{HostPath: l.dir + "/ld.so.preload", ContainerPath: "/etc/ld.so.preload", Readonly: true},
					{HostPath: locks, ContainerPath: "/tmp/vgpulock"},
				},
			}}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	info, err := os.Stat(l.dir + "/ld.so.preload")
	text, readErr := os.ReadFile(l.dir + "/ld.so.preload")
	if err != nil || readErr != nil || info.Mode() != 0o644 || string(text) != "/usr/local/vgpu/libvgpu.so\n" {
		t.Errorf("the file that has it loaded: %v, %q (%v)", info.Mode(), text, readErr)
	}
	devices, _ := l.Limited()
	slices.Sort(devices)
	if diff := cmp.Diff([]string{"gpu/GPU-a", "gpu/GPU-b", "gpu/GPU-c"}, devices); diff != "" {
		t.Errorf("devices whose shares are limited (-want +got):\n%s", diff)
	}
}

func TestAContainerWithAShareNeedsTheLibrary(t *testing.T) {
	path := file(t)
	l := library(t, Settings{Path: path})
	share := claim(types.ResourceList{gpuA + "/memory": gib})
	if addition, _, err := l.Limit(share); err != nil || len(addition.Mounts) != 2 {
		t.Fatalf("%v, %v", addition, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Limit(share); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a container without the library: %v", err)
	}
}

func TestTheLibraryIsCheckedAtTheStart(t *testing.T) {
	path, shared := file(t), file(t)
	if err := os.Chmod(shared, 0o666); err != nil {
		t.Fatal(err)
	}
	for want, s := range map[string]Settings{
		"":                           {Path: path, Locks: filepath.Dir(path)},
		"no such file or directory:": {Path: path + ".1"},
		"is no regular file":         {Path: filepath.Dir(path)},
		"is no absolute path":        {Path: "libvgpu.so"},
		"group or others may write":  {Path: shared},
		"locks: no such file":        {Path: path, Locks: "/nothing/locks"},
		"of a directory":             {Path: path, Locks: path},
	} {
		if err := s.Check(); err == nil != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
	if err := (Settings{Path: shared, AllowWritable: true}).Check(); err != nil {
		t.Errorf("a library that others may write, where that is allowed: %v", err)
	}
}
