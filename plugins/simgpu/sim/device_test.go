// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine is a node's file and directory.
type machine struct {
	t         *testing.T
	file, dir string
	device    *Device
}

func newMachine(t *testing.T) *machine {
	root := t.TempDir()
	m := &machine{t: t, file: filepath.Join(root, "simgpu.yaml"), dir: filepath.Join(root, "devices")}
	m.device = New(m.file)
	return m
}

func (m *machine) write(yaml string) {
	m.t.Helper()
	content := yaml + "\ndeviceDir: " + m.dir + "\n"
	if err := os.WriteFile(m.file, []byte(content), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// update returns what the device adds to an empty node.
func (m *machine) update() *types.NodeInfo {
	m.t.Helper()
	node := types.NewNodeInfoWithName("n1")
	if err := m.device.UpdateNodeInfo(node); err != nil {
		m.t.Fatal(err)
	}
	return node
}

func TestTheFilesContentMayReplaceItsPath(t *testing.T) {
	if !canMakeNodes(t) {
		t.Skip("this user may not make device nodes")
	}
	m := newMachine(t)
	m.device = New("{count: 2, idPrefix: gpu-, topology: [2], deviceDir: " + m.dir + "}")
	if got := m.update().KubeCap["nvidia.com/gpu"]; got != 2 {
		t.Errorf("the node has %d GPUs, want 2", got)
	}
	m.device = New("{count: 2, colour: red}")
	if err := m.device.Start(); err == nil || !strings.Contains(err.Error(), "colour") {
		t.Errorf("with an unknown field: %v", err)
	}
}

// nodes lists the directory: name and device number.
func (m *machine) nodes() []string {
	m.t.Helper()
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		m.t.Fatal(err)
	}
	var nodes []string
	for _, entry := range entries {
		var stat unix.Stat_t
		if err := unix.Lstat(filepath.Join(m.dir, entry.Name()), &stat); err != nil {
			m.t.Fatal(err)
		}
		nodes = append(
			nodes,
			fmt.Sprintf("%s %s %d:%d",
				entry.Name(), fs.FileMode(stat.Mode).Perm(), unix.Major(uint64(stat.Rdev)),
				unix.Minor(uint64(stat.Rdev))),
		)
	}
	return nodes
}

// canMakeNodes reports whether this process may make device nodes; without that, only the error for
// it can be tested.
func canMakeNodes(t *testing.T) bool {
	err := unix.Mknod(filepath.Join(t.TempDir(), "probe"), unix.S_IFCHR|0o600, int(unix.Mkdev(60, 0)))
	return !errors.Is(err, fs.ErrPermission)
}

func TestTheNodeIsWhatTheFileSaysAtAnyTime(t *testing.T) {
	m := newMachine(t)
	m.write("count: 2\ntopology: [2, 2]\nmemory: 100")
	if !canMakeNodes(t) {
		if err := m.device.Start(); err == nil || !strings.Contains(err.Error(), "CAP_MKNOD") {
			t.Errorf("Start = %v, want an error that says what is missing", err)
		}
		return
	}
	if err := m.device.Start(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"sim-0 -rw-rw-rw- 60:0", "sim-1 -rw-rw-rw- 60:1"}, m.nodes()); diff != "" {
		t.Errorf("device nodes after Start (-want +got):\n%s", diff)
	}
	node := m.update()
	if diff := cmp.Diff(types.ResourceList{
		"nvidia.com/gpu": 2,
		"resource/group/gpugrp1/0/gpugrp0/0/gpu/sim-0/cards":  1,
		"resource/group/gpugrp1/0/gpugrp0/0/gpu/sim-0/memory": 100,
		"resource/group/gpugrp1/0/gpugrp0/0/gpu/sim-0/cores":  100,
		"resource/group/gpugrp1/0/gpugrp0/0/gpu/sim-1/cards":  1,
		"resource/group/gpugrp1/0/gpugrp0/0/gpu/sim-1/memory": 100,
		"resource/group/gpugrp1/0/gpugrp0/0/gpu/sim-1/cores":  100,
	}, node.Allocatable); diff != "" {
		t.Errorf("allocatable (-want +got):\n%s", diff)
	}

	m.write(
		"count: 3\nmemory: 100\nunhealthy: [sim-0]\nresourceName: example.com/gpu\ndeviceNumber: {major: 10, minor: " +
			"200}",
	)
	node = m.update()
	if diff := cmp.Diff(
		[]string{"sim-0 -rw-rw-rw- 10:200", "sim-1 -rw-rw-rw- 10:201", "sim-2 -rw-rw-rw- 10:202"}, m.nodes(),
	); diff != "" {
		t.Errorf("device nodes after GPUs were added (-want +got):\n%s", diff)
	}
	health, err := m.device.DeviceHealth()
	if err != nil || len(health) != 1 || health[0].Device != "resource/group/gpu/sim-0" || health[0].Healthy ||
		health[0].Reason != "Simulated" {
		t.Errorf("DeviceHealth = %+v, %v", health, err)
	}
	if diff := cmp.Diff(types.ResourceList{"example.com/gpu": 2}, node.KubeAlloc); diff != "" {
		t.Errorf("count without the unhealthy one (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(types.ResourceList{"example.com/gpu": 3}, node.KubeCap); diff != "" {
		t.Errorf("count with the unhealthy one (-want +got):\n%s", diff)
	}

	m.write("count: 1")
	if err := os.WriteFile(filepath.Join(m.dir, "README"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	m.update()
	if diff := cmp.Diff([]string{"README -rw-r--r-- 0:0", "sim-0 -rw-rw-rw- 60:0"}, m.nodes()); diff != "" {
		t.Errorf("device nodes after GPUs were removed (-want +got):\n%s", diff)
	}
}

func TestAContainerGetsTheDeviceNodesOfItsGPUs(t *testing.T) {
	d := New("simgpu.yaml")
	d.paths = map[string]string{"sim-0": "/dir/sim-0", "sim-1": "/dir/sim-1", "sim-2": "/dir/sim-2"}

	tests := map[string]struct {
		given   []string // resources that serve the container
		paths   []string
		visible string
		err     string
	}{
		"two GPUs": {
			given: []string{
				"resource/group/gpugrp1/0/gpugrp0/0/gpu/sim-2/cards",
				"resource/group/gpugrp1/0/gpugrp0/0/gpu/sim-0/cards",
			},
			paths:   []string{"/dir/sim-0", "/dir/sim-2"},
			visible: "sim-0,sim-2",
		},
		"a share of one": {
			given:   []string{"resource/group/gpugrp1/0/gpugrp0/0/gpu/sim-1/memory"},
			paths:   []string{"/dir/sim-1"},
			visible: "sim-1",
		},
		"devices of another plugin": {
			given: []string{"resource/group/nic/eth0/ports"},
		},
		"no devices": {},
		"a GPU that is not there": {
			given: []string{"resource/group/gpu/sim-9/cards"},
			err:   `this node has no simulated GPU "sim-9": see simgpu.yaml`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			container := types.NewContainerInfo()
			for i, resource := range test.given {
				container.AllocateFrom[types.ResourceName(fmt.Sprint("request ", i))] = types.ResourceName(resource)
			}
			mounts, paths, envs, err := d.Allocate(types.NewPodInfo(), container)
			if test.err != "" {
				if err == nil || err.Error() != test.err {
					t.Errorf("err = %v, want %s", err, test.err)
				}
				return
			}
			if err != nil || len(mounts) != 0 || !slices.Equal(paths, test.paths) ||
				envs[VisibleDevices] != test.visible {
				t.Errorf("Allocate = %v, %v, %v, %v", mounts, paths, envs, err)
			}
		})
	}
}

func TestAFileThatCannotBeReadIsAnErrorThatNamesIt(t *testing.T) {
	m := newMachine(t)
	if err := m.device.Start(); err == nil || !strings.Contains(err.Error(), m.file) {
		t.Errorf("without a file: %v", err)
	}
	m.write("count: none")
	if err := m.device.UpdateNodeInfo(types.NewNodeInfo()); err == nil || !strings.Contains(err.Error(), m.file) {
		t.Errorf("with a bad file: %v", err)
	}
}

func TestFilesThatAreNoDeviceNodesAreNotOverwritten(t *testing.T) {
	m := newMachine(t)
	m.write("count: 1")
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.dir, "sim-0"), []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := m.device.Start(); err == nil || !strings.Contains(err.Error(), "is no character device: remove it") {
		t.Errorf("Start = %v", err)
	}
}
