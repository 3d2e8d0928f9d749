// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kubedevice/kubedevice/test/checkout"
)

// simgpu is the file name of both sides of the simulated GPUs' plugin.
const simgpu = "simgpu.so"

// clusterDir holds what the cluster's programs read: plugins, inventories, static pods.
type clusterDir string

// newClusterDir makes one, with the scheduler's plugin of simulated GPUs.
func newClusterDir(path string) (clusterDir, error) {
	f := clusterDir(path)
	return f, errors.Join(os.Mkdir(f.schedulerPlugins(), 0o755),
		f.addPlugin("scheduler", f.schedulerPlugins()))
}

func (f clusterDir) schedulerPlugins() string { return filepath.Join(string(f), "scheduler") }

func (f clusterDir) devicePlugins(node string) string {
	return filepath.Join(string(f), node, "plugins")
}

func (f clusterDir) staticPods(node string) string { return filepath.Join(string(f), node, "pods") }

func (f clusterDir) inventory(node string) string {
	return filepath.Join(string(f), node, "simgpu.yaml")
}

// addNode makes what a node reads: the plugin, and an inventory of healthy GPUs.
func (f clusterDir) addNode(node string) error {
	return errors.Join(
		os.MkdirAll(f.devicePlugins(node), 0o755),
		os.MkdirAll(f.staticPods(node), 0o755),
		f.addPlugin("simulated", f.devicePlugins(node)),
		f.setInventory(node, ""),
	)
}

// addPlugin puts the simulated GPUs' plugin of one of the directories of plugins into a directory.
func (f clusterDir) addPlugin(from, to string) error {
	root, err := checkout.Root()
	if err != nil {
		return err
	}
	content, err := os.ReadFile(filepath.Join(root, "_output", "plugins", from, simgpu))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: build it first (make build)", err)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, simgpu), content, 0o644)
}

// setInventory gives a node 8 GPUs, NVLink pairs, two pairs to a socket, with some more lines of
// YAML. The file is replaced in one step, as kubecri may read it at any time.
func (f clusterDir) setInventory(node, more string) error {
	content := "count: 8\nidPrefix: gpu-\nmemory: 80Gi\ntopology: [2, 4]\n" + more
	next := f.inventory(node) + ".next"
	if err := os.WriteFile(next, []byte(content), 0o644); err != nil {
		return err
	}
	return os.Rename(next, f.inventory(node))
}
